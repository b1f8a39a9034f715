"""The checks of `mailwarden doctor` that read files of this host alone: certificates, secrets, folders."""

import datetime
import os
import shutil
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from cryptography import x509

from mailwarden.cli.doctor_report import Host, Line
from mailwarden.crypto.keyring import read_ring
from mailwarden.errors import MailwardenError
from mailwarden.serving.tls import server_context

WARN_DAYS = 30
MIN_FREE = 1024 * 1024 * 1024


async def check_certificates(host: Host) -> AsyncIterator[Line]:
    for name, config in host.configs:
        tls = config.tls
        files = (host.folder / tls.certificate, host.folder / tls.key, host.folder / tls.ca)
        yield look_at_certificate(f"certificate {name}", *files)


async def check_folders(host: Host) -> AsyncIterator[Line]:
    for name, config in host.configs:
        yield look_at_folder(f"spool {name}", host.folder / config.spool)
    if host.guard is not None:
        yield look_at_folder("lists guard", host.folder / host.guard.lists.replica)


async def check_secrets(host: Host) -> AsyncIterator[Line]:
    if host.abby is not None:
        yield look_at_pepper(host.folder / host.abby.api_key_pepper)
    yield look_at_contents_key(host.folder, [config.contents.key for _, config in host.configs])


def look_at_certificate(name: str, certificate: Path, key: Path, ca: Path | None = None) -> Line:
    """Look whether a process can listen with these, and for how long."""
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


def look_at_pepper(path: Path) -> Line:
    name = "pepper of API keys"
    try:
        read_ring(path, "apiKeyPepper")
    except MailwardenError as error:
        return Line(False, name, error.message, "restore it from your backup")
    return _readable_by_all(name, path) or Line(True, name, str(path))


def look_at_contents_key(folder: Path, places: Sequence[str]) -> Line:
    """Look for the key that kept messages are sealed with; abby and guard must have the same."""
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
    """Return what is wrong where everybody on this host may read or change a secret."""
    if not secret.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        return None
    return Line(False, name, f"{secret} is open to every user of this host", f"chmod o-rwx {secret}")
