"""TLS contexts for servers and clients, the check of the names in certificates, and how long these are valid.

Contexts have version 1.2 or newer, and verify both sides if a CA is given. Errors name the file: the operator may have
swapped two files, or the process may not read one.

The CA shows that a certificate belongs to the deployment; only its name shows the process. The check follows RFC 9525:
names come from subjectAltName alone, never from the common name (section 2), DNS names compare without case (section
6.3), IP addresses by value (section 6.4). A wildcard in a certificate matches nothing here: a client is one process,
and section 6.3 leaves wildcards to the application.
"""

import ipaddress
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from cryptography import x509

from mailwarden.errors import ConfigurationError, Forbidden
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics, Samples

ABBY_NAME = "abby.mailwarden.internal"  # in the certificate of abby that `mailwarden init` makes
LOG_AGAIN_SECONDS = 60.0
_MAX_REMEMBERED = 100
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.IGNORECASE)

log = get_logger("client_names")


def server_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the context of a server; with `client_ca` a client must present a certificate of that CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could request expensive renegotiations again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _load_certificate(context, certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_ca(context, client_ca)
    return context


class ServerTls:
    """The context of a listener, whose certificate and CA of clients can be replaced while it listens.

    New handshakes use the newest files; open connections keep theirs. `SSLObject.context` replaces the certificate, and
    with it the CAs that OpenSSL verifies the client's certificate with, which it gets later in the handshake. Whether a
    client must present one stays as at the start.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext]) -> None:
        self._make = make
        self._current = make()
        self.context = make()
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Read the files again; if they are invalid, raise ConfigurationError and keep the certificate."""
        self._current = self._make()

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current


def client_context(ca: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Return the context of a client: the server is verified against `ca`, and gets our certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False  # RFC 9525, section 2
    _load_ca(context, ca)
    if certificate is not None:
        _load_certificate(context, certificate, key or certificate)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        _must_be_readable(path)
    try:
        # With the empty password, OpenSSL does not ask for one on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(f"tls: {key} is not the key of {certificate}.") from None
        raise ConfigurationError(
            f"tls: {certificate} and {key} are not a certificate and its key without a password, in PEM "
            f"({error.reason})."
        ) from None


def _load_ca(context: ssl.SSLContext, ca: Path) -> None:
    _must_be_readable(ca)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise ConfigurationError(f"tls: {ca} is not a certificate authority in PEM ({error.reason}).") from None


def _must_be_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigurationError(f"tls: {path} cannot be read ({error.strerror}).") from None


class ClientNames:
    """The clients that may call a process."""

    def __init__(self, names: Sequence[str], setting: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._names = frozenset(map(_canonical, names))
        self._setting = setting
        self._clock = clock
        self._logged: dict[tuple[str, ...], float] = {}
        self._accepted: set[tuple[str, ...]] = set()  # names of certificates that were compared before

    def require(self, certificate: Mapping[str, object] | None, address: str | None) -> None:
        """Raise Forbidden unless the certificate, in the form of `ssl`, has one of the names."""
        names = tuple(names_in(certificate or {}))
        if names in self._accepted:
            return
        if self._names.isdisjoint(map(_canonical, names)):
            self._log(names, address)
            shown = ", ".join(names) or "none"
            raise Forbidden(f"The client certificate has no name of {self._setting} (its names: {shown[:500]}).")
        if len(self._accepted) < _MAX_REMEMBERED:
            self._accepted.add(names)

    def _log(self, names: tuple[str, ...], address: str | None) -> None:
        """Log each certificate at most once per minute: a misconfigured client calls every second."""
        now = self._clock()
        if now - self._logged.get(names, float("-inf")) < LOG_AGAIN_SECONDS:
            return
        if len(self._logged) >= _MAX_REMEMBERED:
            self._logged.clear()
        self._logged[names] = now
        log.warning(
            "client_certificate_rejected",
            names=list(names)[:20],
            address=address,
            advice=f"If this client may call, add one of its names to {self._setting}.",
        )


def names_in(certificate: Mapping[str, object]) -> Iterator[str]:
    """Yield the DNS names and IP addresses of subjectAltName."""
    alternatives = certificate.get("subjectAltName", ())
    for kind, value in alternatives if isinstance(alternatives, tuple) else ():
        if kind in ("DNS", "IP Address"):
            yield value


def name_mistakes(key: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the mistakes in configured names."""
    for name in names:
        if not _is_address(name) and not _DNS_NAME.fullmatch(name):
            yield key, f"`{name}` is not a DNS name or IP address; wildcards are not allowed"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _canonical(name: str) -> str:
    if _is_address(name):
        return f"address {ipaddress.ip_address(name)}"
    return f"name {name.lower().removesuffix('.')}" if "*" not in name else "wildcard"


class CertificateMetrics:
    """Remembers the end of each certificate when the process loads it: a renewed file counts after the reload."""

    def __init__(self, metrics: Metrics) -> None:
        self._ends: dict[str, float] = {}
        metrics.read_gauge(
            "certificate_expiry_seconds",
            "Seconds until a certificate in use expires; negative afterwards.",
            self._samples,
            "certificate",
        )

    def loaded(self, context: ssl.SSLContext, **files: Path) -> ssl.SSLContext:
        """Note the files that the context was made from, by role, and return the context."""
        self.note(**files)
        return context

    def note(self, **files: Path) -> None:
        self._ends |= {role: end_of(path) for role, path in files.items()}

    def _samples(self) -> Samples:
        now = time.time()
        return [((role,), end - now) for role, end in self._ends.items()]


def end_of(path: Path) -> float:
    """Return the moment from which on a certificate of the file is invalid: the first of them to expire."""
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"tls: {path} has no certificate in PEM ({error}).") from None
    return min(each.not_valid_after_utc for each in found).timestamp()
