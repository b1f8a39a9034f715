"""Receives the scan upload: two parts under a hard limit, the message byte for byte, spooled if it is large.

Security: reads hostile bytes. A declared size over the limit is rejected before the body is read, an undeclared one
while it streams. A sender that is too slow is disconnected.
"""

import asyncio
from pathlib import Path

from aiohttp import StreamReader, web

from mailwarden.errors import (
    BadRequest,
    DuplicatePart,
    EmptyEmail,
    MissingPart,
    ParametersContentTypeRequired,
    PayloadTooLarge,
    RequestTimeout,
    UnexpectedPart,
    UnsupportedMediaType,
)
from mailwarden.serving.form_data import FormDataReader, Part, boundary_of, parse_options
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.wire.strict_json import refuse_query

MAX_BODY = 52_428_800
MAX_PARAMETERS = 1_048_576
MIN_BYTES_PER_SECOND = 4_096  # a body with a lower average rate, after the first wait, is cut off
_PARTS = ("parameters", "email")
_JSON_WANTED = "The part `parameters` must say `Content-Type: application/json`, and no charset but UTF-8."


class Upload:
    """A received upload: its parameters as JSON, and the message."""

    __slots__ = ("email", "parameters")

    def __init__(self, parameters: bytes, email: Spooled) -> None:
        self.parameters = parameters
        self.email = email

    def close(self) -> None:
        self.email.close()

    def __enter__(self) -> "Upload":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_upload_head(request: web.BaseRequest) -> str:
    """Check the head of an upload before reading its body; return the boundary."""
    if (request.content_length or 0) > MAX_BODY:
        raise too_large(MAX_BODY)
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("The body must not be compressed.")
    if len(request.headers.getall("Content-Type", [])) > 1:
        raise UnsupportedMediaType("Content-Type is given twice.")
    boundary = boundary_of(request.headers.get("Content-Type", ""))
    refuse_query(request.query)
    return boundary


async def receive_upload(request: web.BaseRequest, boundary: str, spool: Path, *, body_timeout_ms: int) -> Upload:
    """Read the whole body; the caller must close the upload."""
    receiver = UploadReceiver(boundary, spool)
    await send_continue(request)
    try:
        async with BodyClock(body_timeout_ms) as clock:
            while chunk := await clock.next_chunk(request):
                await receiver.take(chunk)
        return await receiver.finish()
    finally:
        receiver.discard()


async def send_continue(request: web.BaseRequest) -> None:
    """Send 100 Continue to a client that asked for it (Expect: 100-continue)."""
    if "Expect" in request.headers and request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the response has not begun


class BodyClock:
    """Limits the wait for the next bytes of a body, and the average rate of all bytes."""

    def __init__(self, body_timeout_ms: int, max_body: int = MAX_BODY) -> None:
        self._max_body = max_body
        self._patience = body_timeout_ms / 1000
        self._started = asyncio.get_running_loop().time()
        self._received = 0
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> "BodyClock":
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            await self._timeout.__aexit__(kind, error, None)
        except TimeoutError:
            raise RequestTimeout("The body came too slowly.") from None

    async def next_chunk(self, request: web.BaseRequest) -> bytes:
        """Return the next bytes, or none at the end of the body."""
        content = request.content
        try:
            chunk = content.read_nowait()
            if not chunk and not content.at_eof():
                chunk = await self._wait_for_chunk(content)
        except web.RequestPayloadError:
            raise BadRequest("The body's framing is broken.") from None
        except RuntimeError:  # the stream raises this after its connection was closed
            raise ConnectionResetError("The caller went away.") from None
        self._received += len(chunk)
        if self._received > self._max_body:
            raise too_large(self._max_body)
        return chunk

    async def _wait_for_chunk(self, content: StreamReader) -> bytes:
        """Wait at most as long as the caller may take; bytes that are there already need no timer."""
        now = asyncio.get_running_loop().time()
        pace = self._started + self._patience + self._received / MIN_BYTES_PER_SECOND
        self._timeout.reschedule(min(now + self._patience, pace))
        chunk = await content.readany()
        self._timeout.reschedule(None)
        return chunk


class UploadReceiver:
    """Writes the body's bytes to the two parts."""

    def __init__(self, boundary: str, spool: Path) -> None:
        self._reader = FormDataReader(boundary)
        self._writer = SpoolWriter(spool)
        self._parts: dict[str, Part] = {}
        self._current: Part | None = None
        self._parameters: list[bytes] = []

    async def take(self, chunk: bytes) -> None:
        for event in self._reader.feed(chunk):
            if isinstance(event, Part):
                self._begin(event)
            elif event is None:
                self._end()
            elif self._current is not None and self._current.name == "parameters":
                self._take_parameters(event)
            else:
                await self._writer.write(event)

    async def finish(self) -> Upload:
        self._reader.finish()
        for name in _PARTS:
            if name not in self._parts:
                raise MissingPart(f"The part `{name}` is missing.")
        return Upload(b"".join(self._parameters), await self._writer.finish())

    def discard(self) -> None:
        self._writer.discard()

    def _begin(self, part: Part) -> None:
        if part.name not in _PARTS:
            raise UnexpectedPart("Only the parts `parameters` and `email` are expected.")
        if part.name in self._parts:
            raise DuplicatePart(f"The part `{part.name}` is there twice.")
        if part.name == "parameters" and not is_json(part.content_type):
            raise ParametersContentTypeRequired(_JSON_WANTED)
        self._parts[part.name] = self._current = part

    def _end(self) -> None:
        assert self._current is not None
        if self._current.name == "email" and not self._current.size:
            raise EmptyEmail("The part `email` is empty.")
        self._current = None

    def _take_parameters(self, piece: bytes) -> None:
        self._parameters.append(piece)
        if self._current is not None and self._current.size > MAX_PARAMETERS:
            raise PayloadTooLarge(f"The part `parameters` is larger than {MAX_PARAMETERS} bytes.")


def is_json(content_type: str) -> bool:
    """Return whether a content type is application/json with UTF-8."""
    media_type, options = parse_options(content_type)
    if media_type != "application/json" or options is None:
        return False
    return options.get("charset", "utf-8").lower() in ("utf-8", "utf8")


def too_large(max_body: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request body is larger than {max_body} bytes ({max_body // 1024**2} MiB).")


async def receive_json(request: web.BaseRequest, *, max_body: int, body_timeout_ms: int) -> bytes:
    """Return the bytes of the body, if its head declares JSON within the size limit."""
    if (request.content_length or 0) > max_body:
        raise too_large(max_body)
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("The body must not be compressed.")
    kinds = request.headers.getall("Content-Type", [])
    if len(kinds) != 1 or not is_json(kinds[0]):
        raise UnsupportedMediaType("The body must be JSON in UTF-8: send one header `Content-Type: application/json`.")
    refuse_query(request.query)
    await send_continue(request)
    chunks: list[bytes] = []
    async with BodyClock(body_timeout_ms, max_body) as clock:
        while chunk := await clock.next_chunk(request):
            chunks.append(chunk)
    return b"".join(chunks)
