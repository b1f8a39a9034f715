"""The transport to a guard by HTTPS: one request per message, with abby's certificate."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from ssl import SSLContext
from uuid import UUID

import aiohttp
import msgspec
from aiohttp import hdrs

from mailwarden.errors import CoreError, CoreUnreachable
from mailwarden.hop.records import (
    GUARD_CONFIGURATION_PATH,
    GUARD_STATUS_PATH,
    MAX_LINE,
    REQUEST_ID_HEADER,
    SCAN_MEDIA_TYPE,
    SUBMIT_PATH,
    AnalysisDone,
    AnalysisFailed,
    AnalyzerDone,
    GuardStatus,
    read_line,
    write_head,
)
from mailwarden.hop.transport import (
    Died,
    NoStatus,
    Refused,
    StatusAnswer,
    error_in,
    late_error,
    malformed_answer,
)
from mailwarden.journal.records import decode
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import RawMessage, Scan
from mailwarden.settings.effective import Setting
from mailwarden.telemetry.tracing import TRACEPARENT
from mailwarden.wire.scanning import ErrorBody, is_result_of

MAX_ANSWER = 1_048_576
MAX_STATUS_BYTES = 65_536
MAX_LINES = 100  # one line per analyzer, with room
CONNECT_SECONDS = 2.0
SILENT_SECONDS = 15.0  # without any answer, also to calls for the status: the guard hangs or its host is gone
ASK_FIRST_ABOVE = 262_144  # a larger body waits for 100 Continue, so that a rejection costs no upload
_KEEP_ALIVE = 60.0  # shorter than the guards' keep-alive, so that a closing connection is not reused

_decode_error = msgspec.json.Decoder(ErrorBody).decode
_decode_status = msgspec.json.Decoder(GuardStatus).decode
_decode_settings = msgspec.json.Decoder(list[Setting]).decode


def open_session(tls: SSLContext) -> aiohttp.ClientSession:
    """Return the connection pool to the guards; `maxUploads` limits it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls, limit=0, keepalive_timeout=_KEEP_ALIVE, socket_factory=open_socket),
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT),
    )


def open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that notices within 20 seconds that guard's host is gone, however long an answer takes."""
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 15_000)):
        if hasattr(socket, option):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return opened


class HttpTransport:
    """Implements `Transport` over HTTPS."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self._submit_url = address.rstrip("/") + SUBMIT_PATH
        self._status_url = address.rstrip("/") + GUARD_STATUS_PATH
        self._configuration_url = address.rstrip("/") + GUARD_CONFIGURATION_PATH
        self._heard_at = float("-inf")
        self._waiting: dict[asyncio.Timeout, float] = {}  # the requests without an answer, and when they began

    async def submit(self, scan: Scan, traceparent: str) -> bytes:
        with guard_errors():
            async with self._unless_silent(), self._post(scan, traceparent) as response:
                return await _result(response, scan.ggrid)

    @asynccontextmanager
    async def watch(self, scan: Scan) -> AsyncIterator["ProgressReader"]:
        async with AsyncExitStack() as stack:
            with guard_errors():
                async with self._unless_silent():
                    response = await stack.enter_async_context(self._post(scan, ""))
                    if response.status != 200:
                        await _result(response, scan.ggrid)
                    reader = ProgressReader(response.content, scan.ggrid)
                    await reader.look_ahead()
            yield reader

    async def status(self) -> StatusAnswer:
        """Return the status; give up the messages of a guard that has been silent for too long."""
        now = asyncio.get_running_loop().time()
        for waiting, began in self._waiting.items():
            if now - max(began, self._heard_at) > SILENT_SECONDS:
                waiting.reschedule(now)
        try:
            async with self._session.get(self._status_url, allow_redirects=False) as response:
                self._hear()
                raw = await response.content.read(MAX_STATUS_BYTES)
                status = _decode_status(raw) if response.status == 200 else None
                return StatusAnswer(status, response.status == HTTPStatus.FORBIDDEN)
        except (aiohttp.ClientError, OSError, msgspec.MsgspecError, ValueError) as error:
            raise NoStatus(type(error).__name__) from None

    async def settings(self) -> Sequence[Setting]:
        try:
            async with self._session.get(self._configuration_url, allow_redirects=False) as response:
                raw = await response.content.read(MAX_STATUS_BYTES)
                return _decode_settings(raw) if response.status == 200 else ()
        except (aiohttp.ClientError, OSError, msgspec.MsgspecError, ValueError):
            return ()

    def _hear(self) -> None:
        self._heard_at = asyncio.get_running_loop().time()

    @asynccontextmanager
    async def _unless_silent(self) -> AsyncIterator[None]:
        """Run the block; raise TimeoutError as soon as the guard has been silent for too long."""
        async with asyncio.timeout(None) as waiting:
            self._waiting[waiting] = asyncio.get_running_loop().time()
            try:
                yield
                self._hear()
            finally:
                del self._waiting[waiting]

    def _post(self, scan: Scan, traceparent: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a small message in one write with its head; a large one as it is read from the spool."""
        head, message = write_head(scan), scan.message
        size = len(head) + message.size
        headers = {hdrs.CONTENT_TYPE: SCAN_MEDIA_TYPE, REQUEST_ID_HEADER: scan.request_id}
        if traceparent:
            headers[TRACEPARENT] = traceparent
        if size <= ASK_FIRST_ABOVE and message.in_memory:
            return self._session.post(
                self._submit_url, data=head + message.data(), headers=headers, allow_redirects=False
            )
        headers[hdrs.CONTENT_LENGTH] = str(size)
        return self._session.post(
            self._submit_url,
            data=_stream(head, message),
            headers=headers,
            expect100=size > ASK_FIRST_ABOVE,
            allow_redirects=False,
        )


async def _stream(head: bytes, message: RawMessage) -> AsyncIterator[bytes]:
    yield head
    async for chunk in message.stream():
        yield chunk


@contextmanager
def guard_errors() -> Iterator[None]:
    """Map a connection error to Refused before the message was sent, and to Died after."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise Refused(CoreUnreachable("No guard can be reached; try again.")) from None
    except (aiohttp.ClientError, OSError) as error:
        gone = CoreUnreachable("The guard closed the connection before it answered; try again.")
        raise Died(gone, type(error).__name__) from None


async def _result(response: aiohttp.ClientResponse, ggrid: UUID) -> bytes:
    return result_in(response.status, await _read_answer(response), ggrid, _retry_after_in(response))


async def _read_answer(response: aiohttp.ClientResponse) -> bytes:
    raw = b""
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > MAX_ANSWER:
            raise Died(malformed_answer(), "answer too large")
    return raw


def _retry_after_in(response: aiohttp.ClientResponse) -> int | None:
    seconds = response.headers.get("Retry-After", "")
    return int(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 4 else None


def result_in(status: int, raw: bytes, ggrid: UUID, retry_after: int | None = None) -> bytes:
    """Return a guard's answer if it is the result of this scan, or raise its error."""
    if status == 200:
        if is_result_of(ggrid, raw):
            return raw
        raise Died(malformed_answer(), "wrong result")
    try:
        code = _decode_error(raw).error
    except (msgspec.MsgspecError, ValueError):
        raise Died(malformed_answer(), "not an answer") from None
    raise error_in(status, code, retry_after)


class ProgressReader:
    """Reads the lines of a watched analysis; it reads the first ahead, so that another guard can still be asked."""

    def __init__(self, content: aiohttp.StreamReader, ggrid: UUID) -> None:
        self._content = content
        self._ggrid = ggrid
        self._buffer = b""
        self._ahead: AnalyzerDone | FinishedRequest | None = None
        self._lines = 0

    async def look_ahead(self) -> None:
        """Wait for the first line; raise Died without one."""
        try:
            self._ahead = await self.next()
        except (CoreError, CoreUnreachable) as error:
            raise Died(error, "no progress") from None

    async def next(self) -> AnalyzerDone | FinishedRequest:
        """Return the next step; raise the guard's error, or CoreUnreachable if the connection broke."""
        if self._ahead is not None:
            step, self._ahead = self._ahead, None
            return step
        self._lines += 1
        if self._lines > MAX_LINES:
            raise malformed_answer()
        try:
            line = read_line(await self._next_line())
            if isinstance(line, AnalysisDone):
                return self._finished(line)
        except (msgspec.MsgspecError, ValueError):
            raise malformed_answer() from None
        if isinstance(line, AnalysisFailed):
            raise late_error(line.error, line.message, line.retry_after)
        return line

    async def _next_line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            try:
                chunk = await self._content.readany()
            except (aiohttp.ClientError, OSError):
                chunk = b""
            if not chunk:
                raise CoreUnreachable("The guard closed the connection before it finished; try again.")
            self._buffer += chunk
            if len(self._buffer) > MAX_LINE:
                raise malformed_answer()
        line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        return line

    def _finished(self, line: AnalysisDone) -> FinishedRequest:
        """Return the finished request if it is that of this scan."""
        finished = decode(bytes(line.record))
        if finished.ggrid != self._ggrid:
            raise malformed_answer()
        return finished
