"""The transport to a guard in another process: many messages at once as frames over one connection with mutual TLS.

A connection is opened in the background, one to each guard process behind an address. Without one, because the guard is
older, full of our messages or not reachable, messages go by HTTPS as before: frames only save time.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from ssl import SSLContext
from urllib.parse import urlsplit

import msgspec

from mailwarden import __version__
from mailwarden.abby.guard_http import (
    CONNECT_SECONDS,
    MAX_ANSWER,
    MAX_LINES,
    HttpTransport,
    ProgressReader,
    connection_broke,
    died_unanswered,
    result_in,
)
from mailwarden.abby.guard_transport import Died, ScanRequest, StatusAnswer, Submission, malformed_answer
from mailwarden.serving.frame_link import FrameLink
from mailwarden.settings.effective import Setting
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import end_tasks
from mailwarden.wire import frames
from mailwarden.wire.frames import FrameError, HelloAnswer, Kind, ScanHead, ScanParameters
from mailwarden.wire.guard import MAX_LINE, group_records
from mailwarden.wire.scanning import BorderMtaData, MessageAnalysisResult

PING_SECONDS = 5.0
SILENT_SECONDS = 15.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts to connect
LOOK_AGAIN_SECONDS = 30.0  # for a guard that got frames by an upgrade, or for another guard behind the address
LOOKS_AT_ONCE = 3  # connections in a row that must lead to known guards, until the next look waits
MAX_GUARDS = 32  # behind one address
MAX_AGE_SECONDS = 3_600.0  # after which certificates are verified again, by a new connection
_WATCHED_BYTES = MAX_LINE + MAX_LINES * 16_384  # of all steps that are not read yet

log = get_logger("guard_frames")
_encode = msgspec.json.Encoder().encode
_PING = frames.encode(Kind.PING, 0)


class NoFrames(Exception):
    """The guard does not speak frames with us; HTTPS shows why."""


class NotSent(Exception):
    """The connection closed before any byte of the message was sent."""


class Exchange:
    """One message on a connection, and the frames that answer it."""

    __slots__ = (
        "_connection",
        "_credit",
        "_frames",
        "_limit",
        "_lost",
        "_parts",
        "_unread",
        "_waiter",
        "ended",
        "stream",
    )

    def __init__(self, connection: "GuardConnection", stream: int, *, watched: bool) -> None:
        self._connection = connection
        self.stream = stream
        self._credit = connection.window
        self._frames: deque[tuple[int, bytes]] = deque()
        self._parts: list[bytes] = []
        self._unread = 0
        self._limit = _WATCHED_BYTES if watched else MAX_ANSWER
        self._waiter: asyncio.Future[None] | None = None
        self._lost = False
        self.ended = False  # the answer has arrived

    async def send(self, head: ScanHead, parameters: bytes, submission: Submission) -> None:
        """Send the whole message, or less if guard answers before; raise NotSent or Died if the connection breaks."""
        message = submission.message
        small = head.parameters_size + head.message_size < frames.MAX_PAYLOAD and message.in_memory
        whole = frames.encode_open(self.stream, head, parameters + message.data()) if small else None
        try:
            await self._connection.send(whole or _opening(self.stream, head))
        except ConnectionError:
            raise NotSent from None
        if whole is not None:
            return
        try:
            await self._send_pieces(parameters)
            async for chunk in message.stream():
                if self.ended:
                    return
                await self._send_pieces(chunk)
        except ConnectionError as error:
            raise died_unanswered(type(error).__name__) from None

    async def _send_pieces(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            while not self._credit and not self.ended:
                await self._wait()
            if self.ended:
                return
            piece = data[position : position + min(self._credit, frames.MAX_PAYLOAD)]
            self._credit -= len(piece)
            position += len(piece)
            await self._connection.send(frames.encode(Kind.DATA, self.stream, piece))

    async def next(self) -> tuple[int, bytes]:
        """Return kind and payload of the next line or answer; raise ConnectionResetError if the connection broke."""
        while not self._frames:
            await self._wait()
        kind, payload = self._frames.popleft()
        self._unread -= len(payload)
        return kind, payload

    async def _wait(self) -> None:
        if self._lost:
            raise ConnectionResetError("The connection is closed.")
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def take(self, kind: int, payload: bytes) -> None:
        if self.ended:
            raise FrameError("unexpected_frame")
        if kind == Kind.CREDIT:
            self._credit += frames.decode_credit(payload)
        else:
            self._take_answer(kind, payload)
        self._wake()

    def _take_answer(self, kind: int, payload: bytes) -> None:
        self._unread += len(payload)
        if self._unread > self._limit:
            raise FrameError("answer_too_large")
        if kind == Kind.PART:
            self._parts.append(payload)
            return
        if self._parts:
            payload = b"".join((*self._parts, payload))
            self._parts.clear()
        self._frames.append((kind, payload))
        self.ended = kind == Kind.ANSWER

    def lose(self) -> None:
        self._lost = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _opening(stream: int, head: ScanHead) -> bytes:
    frame = frames.encode_open(stream, head, b"")
    assert frame is not None, "the fields of a head are short"
    return frame


class GuardConnection(FrameLink):
    """One connection to a guard process."""

    silence = SILENT_SECONDS

    def __init__(self, count_error: Callable[[str], None], on_lost: Callable[["GuardConnection"], None]) -> None:
        super().__init__()
        self._count_error = count_error
        self._on_lost = on_lost
        self._exchanges: dict[int, Exchange] = {}
        self._last = 0
        self._hello: asyncio.Future[HelloAnswer] = self._loop.create_future()
        self._ping_timer: asyncio.TimerHandle | None = None
        self._retired = False
        self.instance = ""
        self.window = frames.WINDOW
        self.max_streams = 1
        self.opened_at = self._loop.time()

    @property
    def in_flight(self) -> int:
        return len(self._exchanges)

    @property
    def has_room(self) -> bool:
        return not self.closed and self.in_flight < self.max_streams and self._last < frames.LAST_STREAM

    async def greet(self) -> None:
        """Agree on a version with the guard; raise NoFrames if it does not."""
        self.write(frames.encode_record(Kind.HELLO, frames.Hello(frames.VERSIONS, f"abby {__version__}")))
        answer = await self._hello
        if answer.version not in frames.VERSIONS:
            self.fail("unknown_version")
            raise NoFrames("version")
        self.instance, self.window, self.max_streams = answer.instance, answer.window, answer.max_streams
        self._ping()

    def open(self, *, watched: bool) -> Exchange:
        self._last += 1
        exchange = self._exchanges[self._last] = Exchange(self, self._last, watched=watched)
        return exchange

    def end(self, exchange: Exchange) -> None:
        """Forget a message; cancel it in guard unless it was answered."""
        del self._exchanges[exchange.stream]
        if not exchange.ended:
            self.write(frames.encode(Kind.CANCEL, exchange.stream))
        if self._retired and not self._exchanges:
            self.close(frames.encode(Kind.GOODBYE, 0, b"retired"))

    def retire(self) -> None:
        """Close when the last message is answered."""
        self._retired = True
        if not self._exchanges:
            self.close(frames.encode(Kind.GOODBYE, 0, b"retired"))

    def take(self, kind: int, stream: int, payload: bytes) -> None:
        if kind in (Kind.CREDIT, Kind.PART, Kind.LINE, Kind.ANSWER) and stream <= self._last:
            exchange = self._exchanges.get(stream)
            if exchange is not None:  # else it was cancelled while this frame was on its way
                exchange.take(kind, payload)
        elif kind == Kind.HELLO and not self._hello.done():
            self._hello.set_result(frames.decode_hello_answer(payload))
        elif kind == Kind.GOODBYE:
            self._refuse_hello(NoFrames(payload[:40].decode("ascii", "replace")))
            self.close()
        else:
            raise FrameError("unexpected_frame")

    def lost(self) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self._refuse_hello(ConnectionResetError("The guard closed the connection."))
        for exchange in self._exchanges.values():
            exchange.lose()
        self._on_lost(self)

    def broken(self, kind: str) -> None:
        self._count_error(kind)

    def _refuse_hello(self, error: Exception) -> None:
        if not self._hello.done():
            self._hello.set_exception(error)
            self._hello.exception()  # if the handshake selected HTTP, no task waits for it

    def _ping(self) -> None:
        self.write(_PING)
        self._ping_timer = self._loop.call_later(PING_SECONDS, self._ping)


class GuardConnections:
    """Keeps a connection to each guard process behind one address."""

    def __init__(self, address: str, tls: SSLContext, count_error: Callable[[str], None]) -> None:
        parts = urlsplit(address)
        self.name = parts.netloc
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._tls = tls
        self._count_error = count_error
        self._open: dict[str, GuardConnection] = {}  # by the instance of the guard
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause = FIRST_PAUSE
        self._known_in_a_row = 0

    @property
    def count(self) -> int:
        return len(self._open)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="frame connections")

    async def stop(self) -> None:
        await end_tasks(self._task)
        for connection in list(self._open.values()):
            connection.close(frames.encode(Kind.GOODBYE, 0, b"stopping"))

    def best(self) -> GuardConnection | None:
        """Return the connection with the fewest messages, or None."""
        usable = [connection for connection in self._open.values() if connection.has_room]
        return min(usable, key=lambda connection: connection.in_flight, default=None)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            seconds = await self._look()
            try:
                async with asyncio.timeout(seconds * random.uniform(0.75, 1.25)):  # noqa: S311 - jitter, not a secret
                    await self._changed.wait()
            except TimeoutError:
                continue
            if not self._open:
                await asyncio.sleep(self._pause)

    async def _look(self) -> float:
        """Open one more connection; return the seconds until the next look."""
        try:
            connection = await self._connect()
        except NoFrames as reason:
            log.debug("guard_without_frames", guard=self.name, reason=str(reason))
            return LOOK_AGAIN_SECONDS
        except (OSError, TimeoutError):  # ssl.SSLError is an OSError
            self._wait_longer()
            return self._pause if not self._open else LOOK_AGAIN_SECONDS
        except Exception:
            log.exception("guard_frames_failed", guard=self.name)
            return LOOK_AGAIN_SECONDS
        self._known_in_a_row = 0 if self._keep(connection) else self._known_in_a_row + 1
        return FIRST_PAUSE if self._known_in_a_row < LOOKS_AT_ONCE else LOOK_AGAIN_SECONDS

    def _keep(self, connection: GuardConnection) -> bool:
        """Keep a connection to a guard that has none yet, or an old one; return whether the guard had none."""
        before = self._open.get(connection.instance)
        if before is None and len(self._open) < MAX_GUARDS and not connection.closed:
            self._open[connection.instance] = connection
            log.info("guard_frames_opened", guard=self.name)
            return True
        if before is not None and connection.opened_at - before.opened_at > MAX_AGE_SECONDS and not connection.closed:
            self._open[connection.instance] = connection
            before.retire()
        else:
            connection.retire()
        return False

    async def _connect(self) -> GuardConnection:
        def make() -> GuardConnection:
            return GuardConnection(self._count_error, self._lose)

        async with asyncio.timeout(CONNECT_SECONDS):
            transport, connection = await asyncio.get_running_loop().create_connection(
                make, self._host, self._port, ssl=self._tls
            )
            try:
                if transport.get_extra_info("ssl_object").selected_alpn_protocol() != frames.ALPN:
                    raise NoFrames("HTTP alone")  # noqa: TRY301
                await connection.greet()
            except BaseException:
                transport.abort()
                raise
        return connection

    def _lose(self, connection: GuardConnection) -> None:
        if self._open.get(connection.instance) is connection:
            del self._open[connection.instance]
            self._known_in_a_row = 0
            if asyncio.get_running_loop().time() - connection.opened_at > LONGEST_PAUSE:
                self._pause = FIRST_PAUSE
            else:  # a guard that closes every connection at once is not asked all the time
                self._wait_longer()
            self._changed.set()
            log.info("guard_frames_closed", guard=self.name)

    def _wait_longer(self) -> None:
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


class FramesTransport:
    """Implements `Transport` over frames, and over HTTPS where there is no connection for them."""

    in_process = False

    def __init__(self, http: HttpTransport, connections: GuardConnections) -> None:
        self._http = http
        self._connections = connections

    async def submit(
        self, submission: Submission, request: ScanRequest, deadline: float, traceparent: str
    ) -> MessageAnalysisResult:
        connection = self._connections.best()
        if connection is None:
            return await self._http.submit(submission, request, deadline, traceparent)
        exchange = connection.open(watched=False)
        try:
            await exchange.send(*_head_of(submission, request, deadline, traceparent=traceparent), submission)
            kind, payload = await exchange.next()
        except NotSent:
            return await self._http.submit(submission, request, deadline, traceparent)
        except ConnectionError as error:
            raise died_unanswered(type(error).__name__) from None
        finally:
            connection.end(exchange)
        if kind != Kind.ANSWER:
            raise Died(malformed_answer(), "not an answer")
        status, retry_after, body = _answer_in(payload)
        return result_in(status, body, request.ggrid, retry_after)

    @asynccontextmanager
    async def watch(
        self, submission: Submission, request: ScanRequest, deadline: float, *, stored: bool
    ) -> AsyncIterator[ProgressReader]:
        connection = self._connections.best()
        if connection is None:
            async with self._http.watch(submission, request, deadline, stored=stored) as progress:
                yield progress
            return
        exchange = connection.open(watched=True)
        try:
            try:
                head = _head_of(submission, request, deadline, watched=True, stored=stored)
                await exchange.send(*head, submission)
            except NotSent:
                raise died_unanswered("not sent") from None
            reader = ProgressReader(Steps(exchange, request).next, request.ggrid)
            await reader.look_ahead()
            yield reader
        finally:
            connection.end(exchange)

    async def status(self) -> StatusAnswer:
        return await self._http.status()

    async def settings(self) -> Sequence[Setting]:
        return await self._http.settings()


class Steps:
    """The lines of a watched analysis; an answer instead of the first line is the guard's error."""

    def __init__(self, exchange: Exchange, request: ScanRequest) -> None:
        self._exchange = exchange
        self._request = request
        self._begun = False

    async def next(self) -> bytes:
        try:
            kind, payload = await self._exchange.next()
        except ConnectionError as error:
            raise (connection_broke() if self._begun else died_unanswered(type(error).__name__)) from None
        if kind == Kind.LINE:
            self._begun = True
            return payload
        status, retry_after, body = _answer_in(payload)
        if status != 200:
            result_in(status, body, self._request.ggrid, retry_after)
            raise malformed_answer()
        return body


def _answer_in(payload: bytes) -> tuple[int, int | None, bytes]:
    try:
        return frames.decode_answer(payload)
    except FrameError:
        raise Died(malformed_answer(), "not an answer") from None


def _head_of(
    submission: Submission,
    request: ScanRequest,
    deadline: float,
    *,
    watched: bool = False,
    stored: bool = True,
    traceparent: str = "",
) -> tuple[ScanHead, bytes]:
    """Return the head of a message and its parameters."""
    envelope = request.envelope
    border = BorderMtaData(envelope.sender, envelope.recipients, envelope.remote_address, envelope.helo)
    parameters = _encode(ScanParameters(border, group_records(request.groups, envelope.recipients)))
    head = ScanHead(
        ggrid=request.ggrid,
        deadline_ms=max(1, int((deadline - asyncio.get_running_loop().time()) * 1000)),
        parameters_size=len(parameters),
        message_size=submission.message.size,
        request_id=request.request_id,
        traceparent=traceparent,
        watched=watched,
        stored=stored,
    )
    return head, parameters


@asynccontextmanager
async def open_connections(
    addresses: Sequence[str], tls: SSLContext, metrics: Metrics
) -> AsyncIterator[dict[str, GuardConnections]]:
    """Open connections to the guards in the background while the block runs."""
    errors = metrics.counter("frame_errors", "Frame connections closed because of an error.", "kind")
    opened = {address: GuardConnections(address, tls, lambda kind: errors.labels(kind).inc()) for address in addresses}
    metrics.read_gauge(
        "guard_frame_connections",
        "Open frame connections to a guard; 0: messages go to it by HTTPS.",
        lambda: [((each.name,), float(each.count)) for each in opened.values()],
        "guard",
    )
    for each in opened.values():
        each.start()
    try:
        yield opened
    finally:
        for each in opened.values():
            await each.stop()
