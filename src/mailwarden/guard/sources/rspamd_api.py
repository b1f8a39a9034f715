"""The scan source `rspamdApi`: answers the clients of Rspamd at `/checkv2`, on its own port.

Security: guard trusts the envelope that a client sends. The listener is on a loopback or private address, or the client
needs the password. Size and duration of a body are limited, and envelopes pass the checks of the scanning API.
Overloaded, EngineUnavailable, ShuttingDown and any other temporary error become `soft reject` with status 200: clients
that see another status deliver the message.
"""

import sys
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import msgspec
from msgspec.structs import replace

from mailwarden.crypto.keyring import read_ring
from mailwarden.crypto.mac import equal
from mailwarden.errors import (
    BadRequest,
    EmptyEmail,
    InvalidCredentials,
    MailwardenError,
    Unauthenticated,
    UnsupportedMediaType,
)
from mailwarden.guard.config import RspamdApi as Settings
from mailwarden.guard.context import GuardContext
from mailwarden.guard.sources.rspamd_answer import CheckAnswer, PerTenantScan, make_answer, make_later
from mailwarden.model.envelope import Envelope
from mailwarden.quarantine.result_headers import ResultSeal, result_fields
from mailwarden.scan.admission import Admission, Reservation
from mailwarden.serving.errors import answer_for
from mailwarden.serving.http_app import Call, HttpApp, Route
from mailwarden.serving.server import Limits, serving
from mailwarden.serving.spool import CHUNK, Spooled, SpoolWriter
from mailwarden.serving.uploads import MAX_BODY, BodyClock, send_continue, too_large
from mailwarden.wire.scanning import read_envelope

MAX_HEAD = 262_144  # 1,000 recipients have a header each
MAX_HEADERS = 1_100
WINDOW_LOG_MAX = 23  # 8 MiB, which every decoder supports (RFC 8878); a larger window is memory for an attacker
PIECE = 262_144
NO_RECIPIENT = "nobody"  # satisfies the checks, and is removed again
_BARE_FOLD = re.compile(rb"(?<!\r)\n(?=[ \t])")
COMPRESSIONS = frozenset({"zstd"})  # rspamc 4 compresses every message
ELSEWHERE = ("File", "Path", "Shm", "Key")
_WITH_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15}))(?::[0-9]{1,5})?")
LATER = "The message could not be scanned now; try again later"


@dataclass(frozen=True, slots=True)
class RspamdApiContext:
    """The parts of guard that the source uses."""

    admission: Admission
    scanner: PerTenantScan
    seal: ResultSeal
    spool: Path


def check_secret(expected: str, presented: str | None, scheme: str) -> None:
    """Compare in constant time; raise if the secret is missing or wrong."""
    if not expected:
        return
    if not presented:
        raise Unauthenticated("The secret is missing.", scheme=scheme)
    if not equal(expected.encode("utf-8"), presented.encode("utf-8", "surrogateescape")):
        raise InvalidCredentials("The secret is wrong.", scheme=scheme)


def check_body_head(request: web.BaseRequest, compressions: Set[str] = frozenset()) -> str:
    """Check size and encoding of the body before any byte of it is read; return its compression, or an empty string.

    Clients of Rspamd name the compression twice.
    """
    if (request.content_length or 0) > MAX_BODY:
        raise too_large(MAX_BODY)
    named = (request.headers.get(name, "").strip().lower() for name in ("Content-Encoding", "Compression"))
    compressed_with = {name for name in named if name not in ("identity", "")}
    if not compressed_with:
        return ""
    if len(compressed_with) > 1 or not compressed_with <= compressions:
        raise UnsupportedMediaType(f"The body must not be compressed by {', '.join(sorted(compressed_with))}.")
    return compressed_with.pop()


class ZstdBody:
    """Decompresses one zstd frame piece by piece, within the limit of a body and the capacity of guard.

    A damaged or incomplete frame is a bad request.
    """

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self._size = 0
        self._frame = ZstdDecompressor(options={DecompressionParameter.window_log_max: WINDOW_LOG_MAX})

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the content of a chunk, at most PIECE bytes at once: a small chunk can have much content."""
        try:
            while chunk or not (self._frame.needs_input or self._frame.eof):
                if self._frame.eof:
                    raise BadRequest("Bytes follow the compressed body.")
                piece = self._frame.decompress(chunk, PIECE)
                self._size += len(piece)
                if self._size > MAX_BODY:
                    raise too_large(MAX_BODY)
                self._reservation.extend(self._size)
                yield piece
                chunk = self._frame.unused_data
        except ZstdError as error:
            raise BadRequest("The body is not a zstd frame, or needs a dictionary or a large window.") from error

    def check_complete(self) -> None:
        if not self._frame.eof:
            raise BadRequest("The compressed body is incomplete.")


async def receive_body(
    request: web.BaseRequest, spool: Path, body_timeout_ms: int, zstd: ZstdBody | None = None
) -> Spooled:
    """Return the whole body, decompressed if it is compressed; the caller closes it."""
    await send_continue(request)
    writer = SpoolWriter(spool)
    try:
        async with BodyClock(body_timeout_ms) as clock:
            while chunk := await clock.next_chunk(request):
                for piece in (chunk,) if zstd is None else zstd.pieces(chunk):
                    await writer.write(piece)
        if zstd is not None:
            zstd.check_complete()
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
    envelope = read_envelope(fields)
    return envelope if recipients else replace(envelope, recipients=())


async def repair_folds(raw: Spooled, spool: Path) -> Spooled:
    """Return the message with CR LF restored in folded header fields; it replaces the given one.

    The milter protocol passes folded fields with bare line feeds, and Rspamd's proxy forwards them so. The MTA has
    CR LF, and guard judges and signs the message that the MTA has. Only a line feed before a space or tab is changed.
    """
    head = next(raw.chunks(CHUNK), b"")
    end = head.find(b"\r\n\r\n")
    block = head[: max(end, 0)]
    repaired = _BARE_FOLD.sub(b"\r\n", block)
    if repaired == block:
        return raw
    writer = SpoolWriter(spool)
    try:
        await writer.write(repaired)
        async for chunk in raw.window(end, raw.size - end).stream():
            await writer.write(chunk)
        return await writer.finish()
    finally:
        writer.discard()
        raw.close()


class RspamdApi:
    name = "rspamdApi"

    def __init__(self, settings: Settings, context: RspamdApiContext) -> None:
        self._settings = settings
        self._context = context

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/checkv2", self.check, quiet=True),
            # A proxy that refers to shared memory uses GET; the error explains why that is not supported.
            Route("GET", "/checkv2", self.check, quiet=True),
            Route("GET", "/ping", answer_ping, quiet=True),
        ]

    async def check(self, call: Call) -> web.StreamResponse:
        """Answer one message; admission happens before the body is read."""
        request = call.request
        check_secret(self._settings.password, request.headers.get("Password"), "Password")
        compressed = check_body_head(request, COMPRESSIONS)
        envelope = envelope_in_headers(request)
        async with self._context.admission.admitted(request.content_length or MAX_BODY) as reservation:
            zstd = ZstdBody(reservation) if compressed else None
            raw = await receive_body(request, self._context.spool, self._settings.body_timeout, zstd)
            if "milter" in request.headers.get("Flags", "").split(","):
                raw = await repair_folds(raw, self._context.spool)
            try:
                answered = await self._context.scanner.scan(envelope, raw)
                fields = await result_fields(self._context.seal, answered.leading, raw)
            finally:
                raw.close()
        return _respond(make_answer(answered, fields))


async def answer_ping(_: Call) -> web.StreamResponse:
    return web.Response(text="pong\r\n")


def answer_error(error: MailwardenError) -> web.Response:
    """Answer in Rspamd's format; client errors keep their status, and no error reads as a clean message."""
    plain = answer_for(error)
    if plain.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _respond(make_later(LATER))
    body = {"error": error.message, "action": "soft reject"}
    headers = {name: plain.headers[name] for name in ("Allow", "WWW-Authenticate") if name in plain.headers}
    return web.Response(
        status=plain.status, body=msgspec.json.encode(body), content_type="application/json", headers=headers
    )


def envelope_in_headers(request: web.BaseRequest) -> Envelope:
    """Return the envelope from the headers."""
    headers = request.headers
    if pointing := [name for name in ELSEWHERE if name in headers]:
        raise BadRequest(f"The message must be in the body, unencrypted: {pointing[0]} is not supported.")
    for name in ("From", "IP", "Helo"):
        if len(headers.getall(name, ())) > 1:
            raise BadRequest(f"The header {name} occurs twice.")
    recipients = [address for value in headers.getall("Rcpt", ()) for address in _addresses(value)]
    sender = next(_addresses(headers.get("From", "")), "")
    return make_envelope(sender, recipients, _without_port(headers.get("IP", "").strip()), headers.get("Helo"))


def _without_port(address: str) -> str:
    """Return an address alone: Rspamd's milter writes 192.0.2.1:25 and [2001:db8::1]:25, others no port."""
    if with_port := _WITH_PORT.fullmatch(address):
        return with_port[1] or with_port[2]
    return address


def _addresses(text: str) -> Iterator[str]:
    """Yield the addresses of a header: one or several with commas between them, each in angle brackets or not."""
    word, quoted, escaped = "", False, False
    for character in f"{text},":
        if character == "," and not quoted:
            if address := word.strip().removeprefix("<").removesuffix(">"):
                yield address
            word = ""
            continue
        if character == '"' and not escaped:
            quoted = not quoted
        escaped = character == "\\" and not escaped
        word += character
    if word:
        raise BadRequest("An address has a quote that does not end.")


def _respond(answer: CheckAnswer) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


@asynccontextmanager
async def open_rspamd_api(context: GuardContext) -> AsyncIterator[Callable[[], None]]:
    """Listen until the block ends, if configured; yield the function after which no new message is accepted."""
    config, settings = context.config, context.config.scan_sources.rspamd_api
    if settings is None:
        yield lambda: None
        return
    scanner = PerTenantScan(
        RspamdApi.name,
        processing=context.processing,
        tenants=context.tenants,
        quarantine_as=settings.quarantine_as,
    )
    seal = ResultSeal(read_ring(context.folder / config.contents.key, "contents.key"))
    source = RspamdApi(settings, RspamdApiContext(context.admission, scanner, seal, context.spool))
    app = HttpApp(source.routes(), context.metrics, meters="rspamd_api", max_head=MAX_HEAD, answer_for=answer_error)
    limits = Limits(max_connections=settings.max_connections, max_headers=MAX_HEADERS)
    async with serving(app, settings.listen, None, limits, grace_ms=config.shutdown_grace_period):
        yield app.close
