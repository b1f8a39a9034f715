"""One connection of frames, the same for abby and guard: it reads frames, and writes those of all messages in turn.

Every message has at most one frame in the queue, so that a large one does not delay the others. The queue is bounded:
a message waits while the other process does not read, and a connection that makes no progress is closed.
"""

import asyncio
from collections import deque
from typing import cast

from mailwarden.telemetry.logs import get_logger
from mailwarden.wire.frames import Frame, FrameDecoder, FrameError, Kind, encode

FULL = 131_072  # bytes in the queue beyond which a message waits for its turn
MAX_QUEUE = 4_194_304  # bytes in the queue beyond which the other process does not read its answers
STALLED_SECONDS = 15.0  # longest time without room for another frame
LAST_WRITE_SECONDS = 1.0  # for frames that are not yet written when the connection closes

log = get_logger("frames")
_PONG = encode(Kind.PONG, 0)


class FrameLink(asyncio.Protocol):
    """A connection; a subclass takes its frames and hears when it is lost."""

    silence = 60.0  # longest time without any byte of the other process

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self._queue: list[bytes] = []  # for the next write
        self._queued = 0
        self._turns: deque[tuple[bytes, asyncio.Future[None]]] = deque()  # at most one of each message
        self._flush_later = False
        self._paused = False
        self._stalled: asyncio.TimerHandle | None = None
        self._listening: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self.closed = False

    def take(self, kind: int, stream: int, payload: bytes) -> None:
        """Take one frame; raise FrameError if it breaks a rule."""
        raise NotImplementedError

    def lost(self) -> None:
        """End everything that needs this connection."""
        raise NotImplementedError

    def broken(self, kind: str) -> None:
        """Count a connection that is closed for this reason."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        self._transport.set_write_buffer_limits(high=FULL)
        self._heard_at = self._loop.time()
        self._listening = self._loop.call_later(self.silence, self._check_silence)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            frames: list[Frame] = self._decoder.feed(data)
            for kind, stream, payload in frames:
                if self.closed:
                    return
                if kind == Kind.PING:
                    self.write(_PONG)
                elif kind != Kind.PONG:
                    self.take(kind, stream, payload)
        except FrameError as error:
            self.fail(error.kind)

    def pause_writing(self) -> None:
        self._paused = True
        if self._stalled is None:
            self._stalled = self._loop.call_later(STALLED_SECONDS, self.fail, "stalled")

    def resume_writing(self) -> None:
        self._paused = False
        self._stop_timer()
        self._flush()
        self._next_turns()

    def connection_lost(self, _: BaseException | None) -> None:
        self.closed = True
        self._stop_timer()
        if self._listening is not None:
            self._listening.cancel()
        self._queue.clear()
        while self._turns:
            sent = self._turns.popleft()[1]
            if not sent.done():
                sent.set_exception(ConnectionResetError("The connection is closed."))
        self.lost()

    def write(self, frame: bytes) -> None:
        """Write a short frame as soon as possible, before those that wait for their turn."""
        if self.closed:
            return
        self._queue.append(frame)
        self._queued += len(frame)
        if self._queued > MAX_QUEUE:
            self.fail("not_reading")
        elif not self._flush_later:
            self._flush_later = True
            self._loop.call_soon(self._flush)

    async def send(self, frame: bytes) -> None:
        """Write a frame of a message when it is its turn; raise ConnectionResetError if the connection is closed."""
        if self.closed:
            raise ConnectionResetError("The connection is closed.")
        if not self._is_full and not self._turns:
            self.write(frame)
            return
        sent = self._loop.create_future()
        self._turns.append((frame, sent))
        await sent

    def fail(self, kind: str) -> None:
        """Close the connection at once, and count the reason."""
        if self.closed:
            return
        log.warning("frame_connection_failed", kind=kind)
        self.broken(kind)
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def close(self, last: bytes = b"") -> None:
        """Write the frames in the queue and a last one, and close; cut the connection if that takes too long."""
        if self.closed or self._transport is None:
            return
        if last:
            self._queue.append(last)
        if self._queue:
            self._write_queue()
        self.closed = True
        self._transport.close()
        self._loop.call_later(LAST_WRITE_SECONDS, self._transport.abort)

    @property
    def _is_full(self) -> bool:
        return self._paused or self._queued >= FULL

    def _flush(self) -> None:
        self._flush_later = False
        if self.closed or self._paused or not self._queue:
            return
        self._write_queue()
        self._next_turns()

    def _write_queue(self) -> None:
        assert self._transport is not None
        queue, self._queue, self._queued = self._queue, [], 0
        self._transport.write(queue[0] if len(queue) == 1 else b"".join(queue))

    def _next_turns(self) -> None:
        """Move waiting frames to the queue in their order, as many as have room."""
        while self._turns and not self._is_full and not self.closed:
            frame, sent = self._turns.popleft()
            if not sent.done():  # the message was not cancelled meanwhile
                self.write(frame)
                sent.set_result(None)

    def _stop_timer(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _check_silence(self) -> None:
        """Close a connection whose other end is gone without a word; look again when it could be so next."""
        left = self._heard_at + self.silence - self._loop.time()
        if left <= 0:
            self.fail("silent")
        else:
            self._listening = self._loop.call_later(left, self._check_silence)
