"""The checks of `mailwarden doctor` that read files of this host alone: certificates, secrets, folders."""

import asyncio
import datetime
import os
import shutil
import ssl
import stat
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from mailwarden.abby.config import AbbyTls, PublicTls
from mailwarden.analysis.text.pattern_set import VECTORSCAN
from mailwarden.analysis.text.phrases import PhraseBook, load_books
from mailwarden.cli.doctor.report import Host, Line
from mailwarden.crypto.keyring import read_ring
from mailwarden.crypto.self_tests import CRYPTOGRAPHY
from mailwarden.errors import MailwardenError
from mailwarden.files.text_recognition import languages, version
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.guard.config import GuardTls
from mailwarden.journal.losses import LOSSES, read_losses
from mailwarden.journal.segments import SUFFIX
from mailwarden.pipeline.sandbox import (
    REQUIRED,
    SandboxMode,
    SandboxUnavailable,
    check_out_of_reach,
    try_sandbox,
)
from mailwarden.pipeline.self_tests import READERS, YARA_ENGINE
from mailwarden.serving.tls import client_context, server_context
from mailwarden.telemetry.self_tests import BASIC, PASSWORDS, wrong_answers

WANTS = Path("/etc/systemd/system/multi-user.target.wants")  # the links of enabled services
TOGETHER, SEPARATE = "mailwarden-all.service", ("mailwarden-abby.service", "mailwarden-guard.service")
WARN_DAYS = 30
MIN_FREE = 1024 * 1024 * 1024
LOSS_DAYS = 7  # for which lost rows of history are shown

MAX_KEY = 65_536

ALL = (*BASIC, *CRYPTOGRAPHY, *PASSWORDS, *READERS, *YARA_ENGINE)


async def check_certificates(host: Host) -> AsyncIterator[Line]:
    for name, config in host.configs:
        tls = config.tls
        files = (host.folder / tls.certificate, host.folder / tls.key, host.folder / tls.ca)
        yield look_at_certificate(f"certificate {name}", *files)


async def check_folders(host: Host) -> AsyncIterator[Line]:
    for name, config in host.configs:
        yield look_at_folder(f"spool {name}", host.folder / config.spool)
    if host.guard is not None:
        replica = host.guard.lists.replica
        yield look_at_folder("lists guard", host.folder / replica)
        place = host.guard.journal.place(host.folder, replica)
        yield look_at_folder("journal guard", place)
        yield look_at_journal(place, host.guard.journal.max_bytes)


async def check_secrets(host: Host) -> AsyncIterator[Line]:
    if host.abby is not None:
        yield look_at_pepper(host.folder / host.abby.api_key_pepper)
    yield look_at_contents_key(host.folder, [config.contents.key for _, config in host.configs])


def look_at_certificate(name: str, certificate: Path, key: Path, ca: Path | None = None) -> Line:
    """Check that a process can listen with these files, and how long the certificate is valid."""
    renew = "sign new ones with `mailwarden init FOLDER --renew`, or with your own authority"
    try:
        server_context(certificate, key, ca)
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (MailwardenError, OSError, ValueError) as error:
        return Line(False, name, str(error), f"restore the files of `tls` from your backup, or {renew}")
    if exposed := _readable_by_all(name, key):
        return exposed
    now = datetime.datetime.now(datetime.UTC)
    if found.not_valid_before_utc > now:
        begins = f"valid from {found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on, and here it is {now:%Y-%m-%d %H:%M}"
        return Line(False, name, begins, "set this host's clock right")
    days = (found.not_valid_after_utc - now).days
    return Line(days > WARN_DAYS, name, f"valid for {days} days", renew)


def look_at_folder(name: str, folder: Path) -> Line:
    remedy = f"make {folder} a folder that this user may write to, with at least 1 GiB free"
    if not folder.exists():
        above = next(parent for parent in folder.absolute().parents if parent.exists())
        return Line(above.is_dir() and os.access(above, os.W_OK), name, f"{folder} is made at the start", remedy)
    if not folder.is_dir():
        return Line(False, name, f"{folder} is not a folder", remedy)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Line(False, name, f"{folder} cannot be written to by this user", remedy)
    free = shutil.disk_usage(folder).free
    return Line(free > MIN_FREE, name, f"{folder}, {free // 1024**3} GiB free", remedy)


def look_at_journal(folder: Path, max_bytes: int) -> Line:
    """Check that no row of history was lost lately, and that the journal has room."""
    name, losses = "history rows", read_losses(folder)
    used = sum(path.stat().st_size for path in folder.glob(f"*{SUFFIX}"))
    now = datetime.datetime.now(datetime.UTC)
    if losses.last is not None and (now - losses.last).days < LOSS_DAYS:
        seen = f"{losses.dropped} dropped, {losses.damaged} damaged, {losses.rejected} rejected; the last one at "
        remedy = f"see docs/runbooks/history-dropped.md; then delete {folder / LOSSES}"
        return Line(False, name, f"{seen}{losses.last:%Y-%m-%d %H:%M} UTC", remedy)
    if used > max_bytes / 2:
        seen = f"{used // 1024**2} MiB wait in {folder}, of {max_bytes // 1024**2} MiB at most"
        return Line(True, name, seen, "repair the database, or raise journal.maxBytes", warning=True)
    return Line(True, name, f"none lost, {used // 1024**2} MiB in the journal")


def look_at_pepper(path: Path) -> Line:
    name = "pepper of API keys"
    try:
        read_ring(path, "apiKeyPepper")
    except MailwardenError as error:
        return Line(False, name, error.message, "restore it from your backup")
    return _readable_by_all(name, path) or Line(True, name, str(path))


def look_at_contents_key(folder: Path, places: Sequence[str]) -> Line:
    """Check the key of stored messages; abby and guard must have the same."""
    name = "key of kept messages"
    try:
        keys = {tuple(key.key_id for key in read_ring(folder / place, "contents.key").keys) for place in places}
    except MailwardenError as error:
        return Line(False, name, error.message, "restore it from your backup, or copy it from another host")
    if len(keys) > 1:
        return Line(False, name, " and ".join(places) + " differ", "give abby and every guard the same file")
    paths = [folder / place for place in sorted(set(places))]
    exposed = next(filter(None, (_readable_by_all(name, path) for path in paths)), None)
    return exposed or Line(True, name, ", ".join(map(str, paths)))


def _readable_by_all(name: str, secret: Path) -> Line | None:
    """Return the mistake if all users of this host may read or change a secret."""
    if not secret.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        return None
    return Line(False, name, f"{secret} is open to every user of this host", f"chmod o-rwx {secret}")


async def check_trust(host: Host) -> AsyncIterator[Line]:
    """Check abby's public certificate, and the place of the CA's key."""
    folder, abby = host.folder, host.abby
    if abby is not None and abby.public_tls is not None:
        public = abby.public_tls
        yield look_at_certificate("certificate public", folder / public.certificate, folder / public.key)
    config = host.guard or abby
    if config is not None and (line := look_at_authority_key(folder, config.tls)):
        yield line


def rejected_certificate(name: str, url: str) -> Line:
    """Return the line for a guard that answers 403: abby's certificate has none of the configured names."""
    remedy = f"add a name of tls.certificate in abby.yml to tls.clientNames in {GUARD_PATH} of that host, restart guard"
    return Line(False, name, f"{url}: guard rejects the name in abby's certificate", remedy)


def look_at_authority_key(folder: Path, tls: AbbyTls | GuardTls) -> Line | None:
    """Warn if the CA's private key is beside the certificates of a service, under any name."""
    try:
        wanted = x509.load_pem_x509_certificate((folder / tls.ca).read_bytes()).public_key()
        places = {(folder / file).parent for file in (tls.ca, tls.certificate, tls.key)} | {folder, folder / "secrets"}
        paths = sorted({path for place in places for path in place.glob("*") if path.is_file()})
    except (OSError, ValueError):
        return None  # reported with the certificates
    for path in paths:
        if _public_key(path) == wanted:
            remedy = f"move {path} off this host; `mailwarden init FOLDER --renew --ca-folder PLACE` uses it from there"
            seen = f"{path}: a reader of this file can issue a certificate for any process"
            return Line(True, "key of the authority", seen, remedy, warning=True)
    return Line(True, "key of the authority", "not in the configuration folder")


def _public_key(path: Path) -> object:
    """Return the public half of a private key, or None if the file has none."""
    try:
        if path.stat().st_size > MAX_KEY:
            return None
        return serialization.load_pem_private_key(path.read_bytes(), None).public_key()
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return None


def public_context(folder: Path, public: PublicTls) -> ssl.SSLContext:
    """Return the context to call this host's abby: it must present exactly the certificate of `publicTls`.

    The certificate itself is the trust anchor, because any CA may have signed it; its names are those of the public
    address.
    """
    context = client_context(folder / public.certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


async def check_sources(host: Host) -> AsyncIterator[Line]:
    """Warn about scan sources over HTTP without a secret."""
    if host.guard is None:
        return
    source = host.guard.scan_sources.rspamd_api
    if source is not None and not source.password:
        place = f"{source.listen.host}:{source.listen.port}"
        seen = f"{place} asks for no secret: every process that reaches it may submit messages"
        remedy = f"set scanSources.rspamdApi.password in {GUARD_PATH}"
        yield Line(True, "scan source rspamdApi", seen, remedy, warning=True)


async def check_sandbox(host: Host) -> AsyncIterator[Line]:
    if host.guard is not None:
        mode = host.guard.workers.sandbox
        yield await _look("sandbox guard", "workers.sandbox", mode, host.folder)
    if host.abby is not None:
        mode = host.abby.console.preview_sandbox
        yield await _look("sandbox abby", "console.previewSandbox", mode, host.folder)


async def _look(name: str, setting: str, mode: SandboxMode, folder: Path) -> Line:
    """Check that this user can sandbox the processes that read messages; a disabled sandbox is a warning."""
    if mode != REQUIRED:
        seen = f"disabled by {setting}: an exploited parser reaches secrets, configuration and the network"
        return Line(True, name, seen, f"remove {setting} and restart", warning=True)
    try:
        check_out_of_reach(folder)
        return Line(True, name, await asyncio.to_thread(try_sandbox))
    except SandboxUnavailable as error:
        return Line(False, name, error.message, f"or set {setting}: disabled, which gives up this protection")


async def check_text_recognition(host: Host) -> AsyncIterator[Line]:
    if host.guard is not None:
        yield recognition_line()


def recognition_line() -> Line:
    """Say whether guard reads the text in pictures; the packages are optional, so their absence is no problem."""
    if found := languages():
        return Line(True, "text in pictures", f"read by Tesseract {version()}, models {', '.join(found)}")
    return Line(True, "text in pictures", "not read: the optional package tesseract-ocr is not installed")


async def check_self_tests(_: Host) -> AsyncIterator[Line]:
    """Run every self-test; a process with a failed one does not start."""
    began = time.perf_counter()
    failed = wrong_answers(ALL)
    for each in failed:
        yield Line(False, f"self-test {each.name}", each.why, each.remedy)
    if not failed:
        took = (time.perf_counter() - began) * 1000
        yield Line(True, "self-tests", f"{len(ALL)} known answers in {took:.0f} ms")


async def check_phrases(host: Host) -> AsyncIterator[Line]:
    if host.guard is not None:
        yield look_at_phrases(load_books())


def look_at_phrases(book: PhraseBook) -> Line:
    """Warn about phrases without their database: the results are the same, and take more processor time."""
    count = f"{len(book.phrases)} phrases"
    if book.engine == "vectorscan":
        return Line(True, "phrases", f"{count} in a database of Vectorscan")
    if not VECTORSCAN:
        return Line(True, "phrases", f"{count}, one by one: there is no Vectorscan for this processor", warning=True)
    seen = f"{count}, one by one: there is no database of this version, so that scans use more CPU"
    return Line(True, "phrases", seen, "run `mailwarden compile` as the owner of the code, then restart", warning=True)


async def check_units(_: Host) -> AsyncIterator[Line]:
    if line := look_at_units(WANTS):
        yield line


def look_at_units(wants: Path) -> Line | None:
    """Check that systemd starts one kind of units at boot; they conflict, and it would choose one of them."""
    together = (wants / TOGETHER).is_symlink()
    separate = [name for name in SEPARATE if (wants / name).is_symlink()]
    if together and separate:
        remedy = f"systemctl disable {' '.join(separate)}, or systemctl disable {TOGETHER}"
        return Line(False, "units", f"{TOGETHER} and {' and '.join(separate)} are enabled, and conflict", remedy)
    enabled = [TOGETHER] if together else separate
    return Line(True, "units", f"enabled: {', '.join(enabled)}") if enabled else None
