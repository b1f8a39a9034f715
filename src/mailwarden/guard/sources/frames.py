"""The scan source `restApi` over frames: all messages of an abby on one connection; admission and errors as over HTTPS.

Security: reads frames of clients whose certificate has a name of tls.clientNames. A broken frame closes the connection;
a message that is wrong in itself gets the status of an HTTPS request.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path

import msgspec
import structlog
from msgspec import Raw

from mailwarden.errors import (
    EmptyEmail,
    Forbidden,
    InternalError,
    MailwardenError,
    Overloaded,
    PayloadTooLarge,
    RequestTimeout,
)
from mailwarden.guard.sources.in_process import scanning_disabled
from mailwarden.guard.sources.rest_api import BODY_TIMEOUT_MS, RestApi
from mailwarden.history.records import encode
from mailwarden.model.evidence import Report
from mailwarden.model.record import FinishedRequest
from mailwarden.serving.errors import retry_after_of, status_of
from mailwarden.serving.frame_link import FrameLink
from mailwarden.serving.http_app import HttpApp, usable_request_id
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.serving.tls import ClientNames
from mailwarden.serving.uploads import MAX_BODY, MIN_BYTES_PER_SECOND, too_large
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import end_tasks
from mailwarden.wire import frames
from mailwarden.wire.frames import FrameError, Kind, ScanHead
from mailwarden.wire.guard import SUBMIT_PATH, AnalysisDone, AnalysisFailed, done_by, write_line
from mailwarden.wire.scanning import ErrorBody, result_of

HELLO_SECONDS = 10.0
MAX_CONNECTIONS = 1_000
_BROKEN = "Something went wrong on our side; guard's log has it."

log = get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class Incoming:
    """The bytes of one message; those that arrive before they are read are bounded by the credit of the message."""

    __slots__ = ("_allowed", "_chunks", "_grant", "_received", "_waiter", "head", "size")

    def __init__(self, head: ScanHead, data: bytes, grant: Callable[[int], None]) -> None:
        self.head = head
        self.size = head.parameters_size + head.message_size
        self._grant = grant
        self._chunks: deque[bytes] = deque()
        self._received = 0
        self._allowed = frames.WINDOW
        self._waiter: asyncio.Future[None] | None = None
        self.add(data)

    def add(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > self.size:
            raise FrameError("too_many_bytes")
        if self._received > self._allowed:
            raise FrameError("beyond_credit")
        self._chunks.append(data)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def receive(self, spool: Path) -> tuple[bytes, Spooled]:
        """Return the parameters and the message, which the caller must close."""
        cut = self.head.parameters_size
        if self._received == self.size and len(self._chunks) == 1:
            data = self._chunks.popleft()
            return data[:cut], Spooled.of(data[cut:])
        parameters, writer = bytearray(), SpoolWriter(spool)
        started, taken = asyncio.get_running_loop().time(), 0
        try:
            while taken < self.size:
                chunk = await self._next(started)
                missing = cut - len(parameters)
                parameters += chunk[:missing] if missing > 0 else b""
                if len(chunk) > missing:
                    await writer.write(chunk[max(missing, 0) :])
                taken += len(chunk)
                self._allow_more(taken)
            return bytes(parameters), await writer.finish()
        finally:
            writer.discard()

    async def _next(self, started: float) -> bytes:
        """Return the next bytes; the limits for a slow sender are those of an HTTPS request."""
        if not self._chunks:
            patience = BODY_TIMEOUT_MS / 1000
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            pace = started + patience + self._received / MIN_BYTES_PER_SECOND
            try:
                async with asyncio.timeout_at(min(loop.time() + patience, pace)):
                    await self._waiter
            except TimeoutError:
                raise RequestTimeout("The body came too slowly.") from None
        return self._chunks.popleft()

    def _allow_more(self, taken: int) -> None:
        """Let abby send as much as was taken, in steps of half a window."""
        more = min(taken + frames.WINDOW, self.size) - self._allowed
        if more >= frames.WINDOW // 2 or 0 < more == self.size - self._allowed:
            self._allowed += more
            self._grant(more)


class AbbyConnection(FrameLink):
    """One connection of an abby."""

    def __init__(self, source: "Frames") -> None:
        super().__init__()
        self._source = source
        self._streams: dict[int, tuple[Incoming, asyncio.Task[None]]] = {}
        self._last = 0
        self._greeted = False
        self._hello_timer: asyncio.TimerHandle | None = None
        self._clients: ClientNames | None = None  # the names that the certificate was compared with

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [task for _, task in self._streams.values()]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._hello_timer = self._loop.call_later(HELLO_SECONDS, self.fail, "no_hello")
        self._source.connections.add(self)
        if len(self._source.connections) > MAX_CONNECTIONS:
            self.fail("too_many_connections")

    def lost(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._source.connections.discard(self)
        for task in self.tasks:  # no caller waits for the results
            task.cancel()

    def broken(self, kind: str) -> None:
        self._source.errors.labels(kind).inc()

    def take(self, kind: int, stream: int, payload: bytes) -> None:
        if kind == Kind.OPEN and self._greeted:
            self._open(stream, payload)
        elif kind == Kind.DATA and 0 < stream <= self._last:
            if stream in self._streams:  # else it was rejected or cancelled while these bytes were on their way
                self._streams[stream][0].add(payload)
        elif kind == Kind.CANCEL and 0 < stream <= self._last:
            if stream in self._streams:
                self._streams[stream][1].cancel()
        elif kind == Kind.HELLO and not self._greeted:
            self._greet(payload)
        elif kind == Kind.GOODBYE:
            self.close()
        else:
            raise FrameError("unexpected_frame")

    def _greet(self, payload: bytes) -> None:
        version = frames.select_version(frames.decode_hello(payload).versions)
        if version is None:
            self.close(frames.encode(Kind.GOODBYE, 0, b"version"))
            return
        try:
            self.require_client()
        except Forbidden as error:  # abby asks over HTTPS and gets the whole error
            self.close(frames.encode(Kind.GOODBYE, 0, error.code.encode()))
            return
        self._greeted = True
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self.write(frames.encode_record(Kind.HELLO, frames.HelloAnswer(version, self._source.instance)))

    def require_client(self) -> None:
        """Raise Forbidden unless the certificate has an allowed name; a reload may have changed the names."""
        clients = self._source.app.clients
        if clients is None or clients is self._clients:
            return
        assert self._transport is not None
        peer = self._transport.get_extra_info("peername")
        clients.require(self._transport.get_extra_info("peercert"), peer[0] if peer else None)
        self._clients = clients

    def _open(self, stream: int, payload: bytes) -> None:
        if stream <= self._last:
            raise FrameError("bad_stream")
        self._last = stream
        head, data = frames.decode_open(payload)
        incoming = Incoming(head, data, lambda size: self.write(frames.encode_credit(stream, size)))
        task = self._loop.create_task(self._answer(stream, incoming), name="scan over frames")
        self._streams[stream] = incoming, task
        task.add_done_callback(partial(self._forget, stream))

    def _forget(self, stream: int, _: object) -> None:
        del self._streams[stream]

    async def _answer(self, stream: int, incoming: Incoming) -> None:
        """Scan one message and answer in every case, unless it is cancelled."""
        began, head = time.perf_counter(), incoming.head
        structlog.contextvars.bind_contextvars(request_id=usable_request_id(head.request_id), ggrid=str(head.ggrid))
        begun = False  # whether abby has the first step of a watched analysis

        def observe(report: Report) -> None:
            nonlocal begun
            begun = True
            for frame in frames.encode_line(stream, write_line(done_by(report))):
                self.write(frame)

        try:
            if len(self._streams) > frames.MAX_STREAMS:
                raise Overloaded("Too many messages on one connection; try again shortly.")  # noqa: TRY301
            self.require_client()
            with self._source.app.open_request():
                finished = await self._source.scan(incoming, observe if head.watched else _ignore)
                status, pause, body = HTTPStatus.OK, None, _result(finished, watched=head.watched)
                await self._send_answer(stream, status, pause, body)
        except ConnectionError:
            return
        except MailwardenError as error:
            status, pause, body = _rejection(error, begun=begun)
            await self._send_error(stream, status, pause, body)
        except Exception:
            log.exception("request_failed")
            status, pause, body = _rejection(InternalError(_BROKEN), begun=begun)
            await self._send_error(stream, status, pause, body)
        self._source.app.count(SUBMIT_PATH, status, time.perf_counter() - began)

    async def _send_error(self, stream: int, status: int, pause: int | None, body: bytes) -> None:
        try:
            await self._send_answer(stream, status, pause, body)
        except ConnectionError:
            return

    async def _send_answer(self, stream: int, status: int, pause: int | None, body: bytes) -> None:
        for frame in frames.encode_answer(stream, status, pause, body):
            await self.send(frame)


def _result(finished: FinishedRequest, *, watched: bool) -> bytes:
    if watched:
        return write_line(AnalysisDone(result_of(finished), Raw(encode(finished))))
    return _encode(result_of(finished))


def _rejection(error: MailwardenError, *, begun: bool) -> tuple[HTTPStatus, int | None, bytes]:
    """Return status, Retry-After and body; after the first step the error is the last line of the progress."""
    if begun:
        return HTTPStatus.OK, None, write_line(AnalysisFailed(error.code, error.message, error.retry_after))
    return status_of(error), retry_after_of(error), _encode(ErrorBody(error=error.code, message=error.message))


class Frames:
    """The connections of all abbys; without `scanSources.restApi` it rejects every message."""

    name = frames.ALPN

    def __init__(self, api: RestApi | None, app: HttpApp, metrics: Metrics) -> None:
        self.app = app
        self.instance = secrets.token_hex(8)
        self.connections: set[AbbyConnection] = set()
        self._api = api
        self.errors = metrics.counter("frame_errors", "Frame connections closed because of an error.", "kind")

    def __call__(self) -> AbbyConnection:
        return AbbyConnection(self)

    async def scan(self, incoming: Incoming, observe: Callable[[Report], None]) -> FinishedRequest:
        if self._api is None:
            raise scanning_disabled()
        head = incoming.head
        if head.message_size > MAX_BODY:
            raise too_large(MAX_BODY)
        if head.parameters_size > frames.MAX_SCAN_PARAMETERS:
            raise PayloadTooLarge(f"The parameters are larger than {frames.MAX_SCAN_PARAMETERS} bytes.")
        if not head.message_size:
            raise EmptyEmail("The message is empty.")
        return await self._api.scan_arriving(incoming, observe)

    async def close(self) -> None:
        """Close all connections; messages that are still in processing are cancelled."""
        open_now = list(self.connections)
        for connection in open_now:
            connection.close(frames.encode(Kind.GOODBYE, 0, b"stopping"))
        await end_tasks(*(task for connection in open_now for task in connection.tasks))


def _ignore(_: Report) -> None:
    """Ignore a report: no user watches this analysis."""
