"""Receives a scan request of abby: the head, and the message byte for byte, spooled if it is large.

Security: only clients with a certificate of `tls.clientNames` get here, but a head is read like hostile bytes: head and
message are bounded before they are read, and a body that ends early is refused.
"""

from pathlib import Path

import msgspec
from aiohttp import web

from mailwarden.errors import BadRequest, EmptyEmail, PayloadTooLarge, UnsupportedMediaType
from mailwarden.hop.records import LENGTH_BYTES, MAX_SCAN_HEAD, SCAN_MEDIA_TYPE, ScanHead, read_head
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.serving.uploads import MAX_BODY, BodyClock, send_continue

MAX_SCAN_BODY = LENGTH_BYTES + MAX_SCAN_HEAD + MAX_BODY


def scan_body_size(request: web.BaseRequest) -> int:
    """Return the size of the body that the request's head announces, or raise an error if it is not a scan request."""
    if request.headers.get("Content-Type") != SCAN_MEDIA_TYPE:
        raise UnsupportedMediaType(f"This is guard's own port; messages come here through abby, as {SCAN_MEDIA_TYPE}.")
    size = request.content_length
    if size is None:
        raise BadRequest("A scan request needs Content-Length.")
    if size > MAX_SCAN_BODY:
        raise PayloadTooLarge(f"The body of the scan request is larger than {MAX_SCAN_BODY} bytes.")
    return size


async def receive_scan(request: web.BaseRequest, spool: Path, *, body_timeout_ms: int) -> tuple[ScanHead, Spooled]:
    """Read the whole body; the caller must close the message."""
    reader = ScanReader(scan_body_size(request), spool)
    await send_continue(request)
    try:
        async with BodyClock(body_timeout_ms, MAX_SCAN_BODY) as clock:
            while chunk := await clock.next_chunk(request):
                await reader.take(chunk)
        return await reader.finish()
    finally:
        reader.discard()


class ScanReader:
    """Separates the head from the message, chunk by chunk; `size` is that of the whole body."""

    def __init__(self, size: int, spool: Path) -> None:
        self._size = size
        self._writer = SpoolWriter(spool)
        self._head: ScanHead | None = None
        self._pieces: list[bytes] = []
        self._held = 0
        self._head_end = LENGTH_BYTES  # in the body; known as soon as the length of the head is there

    async def take(self, chunk: bytes) -> None:
        if self._head is None:
            chunk = self._take_head(chunk)
        if chunk:
            await self._writer.write(chunk)

    async def finish(self) -> tuple[ScanHead, Spooled]:
        if self._head is None:
            raise BadRequest("The body of the scan request ends within its head.")
        return self._head, await self._writer.finish()

    def discard(self) -> None:
        self._writer.discard()

    def _take_head(self, chunk: bytes) -> bytes:
        """Collect bytes until the head is whole; return the bytes of the message that follow it."""
        self._pieces.append(chunk)
        self._held += len(chunk)
        if self._held < self._head_end:
            return b""
        data = b"".join(self._pieces)
        if self._head_end == LENGTH_BYTES:
            self._head_end += int.from_bytes(data[:LENGTH_BYTES], "big")
            self._check_sizes()
            if self._held < self._head_end:
                self._pieces = [data]
                return b""
        self._pieces.clear()
        try:
            self._head = read_head(data[LENGTH_BYTES : self._head_end])
        except (msgspec.MsgspecError, ValueError) as error:
            raise BadRequest(f"The head of the scan request is malformed: {error}") from None
        return data[self._head_end :]

    def _check_sizes(self) -> None:
        """Check both lengths, before the rest of the head and the message are read."""
        if self._head_end > LENGTH_BYTES + MAX_SCAN_HEAD:
            raise PayloadTooLarge(f"The head of the scan request is larger than {MAX_SCAN_HEAD} bytes.")
        message = self._size - self._head_end
        if message < 0:
            raise BadRequest("The head of the scan request is longer than its body.")
        if message == 0:
            raise EmptyEmail("The message of the scan request is empty.")
        if message > MAX_BODY:
            raise PayloadTooLarge(f"The message of the scan request is larger than {MAX_BODY} bytes.")
