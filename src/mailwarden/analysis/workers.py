"""A pool of worker processes that can be killed: hostile bytes are parsed there and never in guard's own process."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec

from mailwarden.analysis.analyzer import RawMessage
from mailwarden.analysis.examination import Frame, Job, Started
from mailwarden.analysis.registry import STRUCTURE
from mailwarden.analysis.sandbox import REQUIRED, SandboxMode, environment
from mailwarden.analysis.view import NOBODY
from mailwarden.errors import ConfigurationError
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind
from mailwarden.model.sightings import Sight
from mailwarden.telemetry.logs import get_logger

_START_TIMEOUT = 60.0  # alone it takes one or two; a machine that is busy with other things takes its time
_MAX_FRAME = 64 * 1024 * 1024
_FRAMES = msgspec.msgpack.Decoder(Frame)  # a third of the cost of telling the type anew for each

OnFrame = Callable[[Frame], None]

log = get_logger(__name__)


class WorkerFailed(Exception):
    """A worker ended, or was ended, before it finished with a message."""

    def __init__(self, kind: FailureKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.sentence = sentence


class Patience(msgspec.Struct, frozen=True):
    """How long each step of an examination may take, in seconds."""

    structure: float = 1.0
    parse: float = 10.0
    analyzer: float = 15.0


class WorkerSettings(msgspec.Struct, frozen=True):
    """How a worker process is started: its memory in MiB, the folder of YARA rules, and whether it is sandboxed."""

    memory: int
    patience: Patience
    rules: str = ""
    sandbox: SandboxMode = REQUIRED
    program: tuple[str, ...] = ("-m", "mailwarden.analysis.worker")

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-P", *self.program, str(self.memory), self.sandbox, self.rules)


class Worker(asyncio.Protocol):
    """One worker process and the socket to it; used for one message at a time."""

    def __init__(self, patience: Patience, files: socket.socket) -> None:
        self.killed = False
        self.layers: tuple[str, ...] = ()  # of its sandbox
        self._files = files  # the same socket as the transport's: only this one can send a file descriptor
        self._patience = patience
        self._process: asyncio.subprocess.Process | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Started] = self._loop.create_future()
        self._done: asyncio.Future[None] | None = None
        self._on_frame: OnFrame | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, settings: WorkerSettings) -> "Worker":
        """Start the process and wait until it is ready for its first message."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *settings.command, stdin=theirs.fileno(), stdout=theirs.fileno(), cwd="/", env=environment()
            )
        worker = cls(settings.patience, ours.dup())
        worker._process = process
        try:
            transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=ours)
            worker._transport = cast("asyncio.WriteTransport", transport)
            async with asyncio.timeout(_START_TIMEOUT):
                started = await worker._ready
        except (TimeoutError, EOFError):
            await worker.end()
            raise OSError("A worker process did not start; its own words are in the log above.") from None
        except BaseException:
            await worker.end()
            raise
        if started.problem:
            await worker.end()
            raise ConfigurationError(started.problem)
        worker.layers = started.layers
        return worker

    @property
    def usable(self) -> bool:
        return not self.killed and self._process is not None and self._process.returncode is None

    async def examine(
        self, raw: RawMessage, on_frame: OnFrame, wanted: tuple[Sight, ...] = (), envelope: Envelope = NOBODY
    ) -> None:
        """Tell `on_frame` each step of one message; one that is late or gone is killed, and WorkerFailed says so."""
        assert self._transport is not None
        file = raw.open_to_read()
        try:
            body = msgspec.msgpack.encode(Job(b"".join(raw.chunks()) if file is None else b"", wanted, envelope))
            self._on_frame, self._done = on_frame, self._loop.create_future()
            self._wait(self._patience.structure)
            self._send(body, file)
        finally:
            if file is not None:
                os.close(file)
        try:
            await self._done
        except BaseException:
            self.kill()  # left in mid-message, its next frame would belong to another message
            raise
        finally:
            self._on_frame = self._done = None
            self._stop_waiting()

    def _send(self, body: bytes, file: int | None) -> None:
        """Send one job. Nothing else waits to be sent: the worker has answered the job before."""
        assert self._transport is not None
        head = len(body).to_bytes(4)
        if file is None:
            self._transport.writelines([head, body])
            return
        try:
            socket.send_fds(self._files, [head], [file])
        except OSError:  # the worker has ended; the transport tells the same
            self._fail(FailureKind.CRASHED, "The worker process ended before it took the message.")
            return
        self._transport.write(body)

    def data_received(self, data: bytes) -> None:
        self._received += data
        latest: Frame | None = None
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4])
            if end > _MAX_FRAME:
                self._fail(FailureKind.CRASHED, "The worker process sent what no worker sends.")
                return
            if len(self._received) < end:
                break
            body = bytes(self._received[4:end])
            del self._received[:end]
            latest = self._take(body) or latest
        if latest is not None and not latest.last:  # frames come many at once: the clock is set for the last of them
            self._wait(self._patience.parse if latest.report.analyzer == STRUCTURE else self._patience.analyzer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.killed = True
        if not self._ready.done():
            self._ready.set_exception(EOFError())
        self._fail(FailureKind.CRASHED, "The worker process that examined the message crashed.")

    def _take(self, body: bytes) -> Frame | None:
        """Hand one frame on and return it, or None where nobody waits for it."""
        if not self._ready.done():
            self._begin(body)
            return None
        if self._on_frame is None or self._done is None or self._done.done():
            return None
        try:
            frame = _FRAMES.decode(body)
        except msgspec.DecodeError:
            self._fail(FailureKind.CRASHED, "The worker process sent what no worker sends.")
            return None
        self._on_frame(frame)
        if frame.last:
            self._done.set_result(None)
        return frame

    def _begin(self, body: bytes) -> None:
        try:
            self._ready.set_result(msgspec.msgpack.decode(body, type=Started))
        except msgspec.DecodeError:
            self._ready.set_exception(EOFError())

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        sentence = f"A step of the examination took longer than {seconds:g} s."
        self._timer = self._loop.call_later(seconds, self._fail, FailureKind.TIMEOUT, sentence)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, kind: FailureKind, sentence: str) -> None:
        self.kill()
        if self._done is not None and not self._done.done():
            self._done.set_exception(WorkerFailed(kind, sentence))

    def kill(self) -> None:
        self.killed = True
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def end(self) -> None:
        self.kill()
        self._files.close()
        if self._transport is not None:
            self._transport.abort()
        if self._process is not None:
            await self._process.wait()


class WorkerPool:
    """A fixed number of workers; who ends is replaced in the background."""

    def __init__(
        self, count: int, memory: int, patience: Patience, rules: str = "", sandbox: SandboxMode = REQUIRED
    ) -> None:
        """Take how many workers there are, the memory of each in MiB, and the folder of the operator's rules."""
        self._count = count
        self.settings = WorkerSettings(memory, patience, str(Path(rules).resolve()) if rules else "", sandbox)
        self._idle: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()
        self._replacing: set[asyncio.Task[None]] = set()
        self._all: set[Worker] = set()
        self._stopped = False

    async def start(self) -> None:
        await asyncio.gather(*(self._add() for _ in range(self._count)))

    @property
    def layers(self) -> tuple[str, ...]:
        """Return the layers of the sandbox that every worker has; none where it is disabled."""
        sets = [worker.layers for worker in self._all]
        return tuple(layer for layer in sets[0] if all(layer in others for others in sets)) if sets else ()

    async def stop(self) -> None:
        self._stopped = True
        await asyncio.gather(*self._replacing, return_exceptions=True)  # one cancelled halfway would leave a process
        await asyncio.gather(*(worker.end() for worker in self._all), return_exceptions=True)

    async def examine(
        self, raw: RawMessage, on_frame: OnFrame, wanted: tuple[Sight, ...] = (), envelope: Envelope = NOBODY
    ) -> None:
        """Have the next free worker look at one message."""
        worker = await self._take()
        try:
            await worker.examine(raw, on_frame, wanted, envelope)
        finally:
            if worker.usable:
                self._idle.put_nowait(worker)
            else:
                self._replace(worker)

    async def _take(self) -> Worker:
        while True:
            worker = await self._idle.get()
            if worker.usable:
                return worker
            self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        self._all.discard(worker)
        if self._stopped:
            return
        task = asyncio.create_task(self._renew(worker))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _renew(self, worker: Worker) -> None:
        await worker.end()
        while not self._stopped:
            try:
                await self._add()
            except (OSError, ConfigurationError) as error:
                log.warning("worker_cannot_start", error=str(error))
                await asyncio.sleep(1.0)
            else:
                return

    async def _add(self) -> None:
        worker = await Worker.start(self.settings)
        if self._stopped:
            await worker.end()
            return
        self._all.add(worker)
        self._idle.put_nowait(worker)
