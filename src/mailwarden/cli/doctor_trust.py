"""The checks of `mailwarden doctor` about trust between processes: names in certificates, and the authority's key."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from mailwarden.abby.config import AbbyTls, PublicTls
from mailwarden.cli.doctor_files import look_at_certificate
from mailwarden.cli.doctor_report import Host, Line
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.guard.config import GuardTls
from mailwarden.serving.tls import client_context
from mailwarden.settings.shared import Listen

MAX_KEY = 65_536


async def check_trust(host: Host) -> AsyncIterator[Line]:
    """Check abby's public certificate, and where the authority's key is."""
    folder, abby = host.folder, host.abby
    if abby is not None and abby.public_tls is not None:
        public = abby.public_tls
        yield look_at_certificate("certificate public", folder / public.certificate, folder / public.key)
    config = host.guard or abby
    if config is not None and (line := look_at_authority_key(folder, config.tls)):
        yield line


def rejected_certificate(name: str, url: str) -> Line:
    """Return the line for a guard that answers 403: abby's certificate has none of the names it is configured for."""
    remedy = f"add a name of tls.certificate in abby.yml to tls.clientNames in {GUARD_PATH} of that host, restart guard"
    return Line(False, name, f"{url}: guard rejects the name in abby's certificate", remedy)


def look_at_authority_key(folder: Path, tls: AbbyTls | GuardTls) -> Line | None:
    """Warn where the authority's private key lies beside the certificates of a service, under any name."""
    try:
        wanted = x509.load_pem_x509_certificate((folder / tls.ca).read_bytes()).public_key()
        places = {(folder / file).parent for file in (tls.ca, tls.certificate, tls.key)} | {folder, folder / "secrets"}
        paths = sorted({path for place in places for path in place.glob("*") if path.is_file()})
    except (OSError, ValueError):
        return None  # reported with the certificates
    for path in paths:
        if _public_key(path) == wanted:
            remedy = f"move {path} off this host; `mailwarden init FOLDER --renew --ca-folder PLACE` uses it from there"
            seen = f"{path}: who reads it can sign a certificate for any process"
            return Line(True, "key of the authority", seen, remedy, warning=True)
    return Line(True, "key of the authority", "not in the configuration folder")


def _public_key(path: Path) -> object:
    """Return the public half of a private key, or None where the file is none."""
    try:
        if path.stat().st_size > MAX_KEY:
            return None
        return serialization.load_pem_private_key(path.read_bytes(), None).public_key()
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return None


def public_context(folder: Path, public: PublicTls) -> ssl.SSLContext:
    """Return the context to call this host's abby with: it must show exactly the certificate of `publicTls`.

    The certificate itself is the anchor, as its authority may be any; its names are those of the public address.
    """
    context = client_context(folder / public.certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


async def check_sources(host: Host) -> AsyncIterator[Line]:
    """Warn about scan sources over HTTP that ask for no secret."""
    if host.guard is None:
        return
    asked, hooked = host.guard.scan_sources.rspamd_api, host.guard.scan_sources.stalwart_hook
    if asked is not None and not asked.password:
        yield _without_secret("rspamdApi", "password", asked.listen)
    if hooked is not None and not hooked.token:
        yield _without_secret("stalwartHook", "token", hooked.listen)


def _without_secret(name: str, key: str, listen: Listen) -> Line:
    seen = f"{listen.host}:{listen.port} asks for no secret: every process that reaches it may submit messages"
    return Line(True, f"scan source {name}", seen, f"set scanSources.{name}.{key} in {GUARD_PATH}", warning=True)
