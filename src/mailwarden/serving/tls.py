"""TLS contexts for servers and clients: version 1.2 or newer, both sides verified if a CA is given.

Errors name the file: the operator may have swapped two files, or the process may not read one.
"""

import ssl
from collections.abc import Callable
from pathlib import Path

from mailwarden.errors import ConfigurationError


def server_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the context of a server; with `client_ca` a client must present a certificate of that CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could request expensive renegotiations again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _show(context, certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, client_ca)
    return context


class ServerTls:
    """The context of a listener, whose certificate can be replaced while it listens.

    New handshakes get the newest certificate; open connections keep theirs. The CA of clients stays the one of the
    start: `SSL.context` replaces only the certificate.
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
    _trust(context, ca)
    if certificate is not None:
        _show(context, certificate, key or certificate)
    return context


def _show(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
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


def _trust(context: ssl.SSLContext, ca: Path) -> None:
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
