"""TLS contexts for listening and for calling: version 1.2 or newer, both sides verified where an authority is given."""

import ssl
from pathlib import Path


def server_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the context to listen with; with `client_ca` a caller must show a certificate signed by it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A renegotiation is work that a caller can ask for again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


def client_context(ca: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Return the context to call with: the other side is verified against `ca`, and sees our certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(ca)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
