"""The common part of the scan sources `rspamdApi` and `stalwartHook`: the secret, the body and the envelope.

Security: reads hostile bytes. Size and duration of a body are limited, and envelopes pass the checks of the scanning
API.
"""

from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from mailwarden.crypto.mac import equal
from mailwarden.errors import BadRequest, EmptyEmail, InvalidCredentials, Unauthenticated, UnsupportedMediaType
from mailwarden.guard.admission import Admission
from mailwarden.guard.result_headers import ResultSeal
from mailwarden.guard.sources.per_tenant_scan import PerTenantScan
from mailwarden.model.envelope import Envelope
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.serving.uploads import MAX_BODY, BodyClock, grant_body, too_large
from mailwarden.wire.parameters import envelope_of, read_record

MAX_HEAD = 262_144  # 1,000 recipients have a header each
MAX_HEADERS = 1_100
NO_RECIPIENT = "nobody"  # satisfies the checks, and is removed again


@dataclass(frozen=True, slots=True)
class HttpSourceContext:
    """The parts of guard that both sources use."""

    admission: Admission
    scanner: PerTenantScan
    seal: ResultSeal
    spool: Path


def check_secret(wanted: str, given: str | None, scheme: str) -> None:
    """Compare in constant time; raise if the secret is missing or wrong."""
    if not wanted:
        return
    if not given:
        raise Unauthenticated("The secret is missing.", scheme=scheme)
    if not equal(wanted.encode("utf-8"), given.encode("utf-8", "surrogateescape")):
        raise InvalidCredentials("The secret is wrong.", scheme=scheme)


def check_body_head(request: web.BaseRequest) -> None:
    """Check size and encoding of the body before any byte of it is read."""
    if (request.content_length or 0) > MAX_BODY:
        raise too_large(MAX_BODY)
    encodings = (request.headers.get(name, "identity") for name in ("Content-Encoding", "Compression"))
    if any(encoding.strip().lower() not in ("identity", "") for encoding in encodings):
        raise UnsupportedMediaType("The body must not be compressed.")


async def receive_body(request: web.BaseRequest, spool: Path, body_timeout_ms: int) -> Spooled:
    """Return the whole body; the caller closes it."""
    await grant_body(request)
    writer = SpoolWriter(spool)
    try:
        async with BodyClock(body_timeout_ms) as clock:
            while chunk := await clock.next_chunk(request):
                await writer.write(chunk)
        received = await writer.finish()
    finally:
        writer.discard()
    if not received.size:
        raise EmptyEmail("The message is missing: the body is empty.")
    return received


def make_envelope(sender: str, recipients: list[str], address: str | None, helo: str | None) -> Envelope:
    """Return the envelope, checked by the rules of the scanning API; clients may send no recipient."""
    fields: dict[str, object] = {"envelopeFrom": sender, "envelopeRecipients": recipients or [NO_RECIPIENT]}
    if address:
        fields["remoteAddress"] = address
    if helo:
        fields["senderHelo"] = helo
    for text in (sender, *recipients, address or "", helo or ""):
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise BadRequest("The envelope is not UTF-8.")
    envelope = envelope_of(read_record({"borderMtaData": fields}))
    return envelope if recipients else Envelope(envelope.sender, (), envelope.remote_address, envelope.helo)
