"""A pool of worker processes that can be killed: hostile bytes are parsed there and never in guard's own process."""

import asyncio
import math
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec
from msgspec.structs import replace

from mailwarden.analysis.view import NOBODY
from mailwarden.errors import ConfigurationError, Overloaded
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind
from mailwarden.model.observables import Observable
from mailwarden.model.scan import Flow, RawMessage
from mailwarden.pipeline.fair_queue import NO_FLOW, FairQueue, Turn
from mailwarden.pipeline.message_weight import HEAVY_BYTES, LIGHT_SECONDS, QUICK_SECONDS, is_quick
from mailwarden.pipeline.registry import STRUCTURE
from mailwarden.pipeline.sandbox import REQUIRED, SandboxMode, environment
from mailwarden.pipeline.worker_steps import Frame, Job, Started
from mailwarden.telemetry.logs import get_logger

NICE = 10  # of workers for heavy messages, above guard's own
LOWEST_PRIORITY = 19  # nice value: setpriority(2)
SESSION_NICE = 5
_CPUCLOCK_SCHED = 2  # of a process: see clock_getcpuclockid(3)
_CLOCK_TICK = 0.005
_SLOWNESS, _HEAVY_SLOWNESS = 4.0, 10.0
_START_TIMEOUT = 60.0  # an idle machine takes one or two
_MAX_FRAME = 64 * 1024 * 1024  # not inspection: an answer of our own worker; a larger one fails
_FRAMES = msgspec.msgpack.Decoder(list[Frame])  # a third of the cost of a new decoder for each

OnFrame = Callable[[Frame], None]

log = get_logger(__name__)


class WorkerFailed(Exception):
    """A worker ended, or was ended, before it finished with a message."""

    def __init__(self, kind: FailureKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.sentence = sentence


class Timeouts(msgspec.Struct, frozen=True):
    """How long each step of an examination may take, in seconds of processor time.

    A worker that waits for the processor is not late: killing it would cost another start on a machine that is busy
    already. By the clock a step may take some times as long, see `WorkerSettings.slowness`.
    """

    structure: float = 1.0
    parse: float = 10.0
    analyzer: float = 15.0


class WorkerSettings(msgspec.Struct, frozen=True):
    """How a worker process is started: its memory in MiB, the operator's folders, and whether it is sandboxed."""

    memory: int
    timeouts: Timeouts
    rules: str = ""  # the folder of YARA rules
    sandbox: SandboxMode = REQUIRED
    domains: str = ""  # the folder of knowledge about domains
    heavy: bool = False  # for heavy messages: lower priority and longer timeouts, as it waits for the processor
    program: tuple[str, ...] = ("-m", "mailwarden.pipeline.worker")

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-P", *self.program, str(self.memory), self.sandbox, self.rules, self.domains)

    def for_heavy(self) -> "WorkerSettings":
        return replace(self, heavy=True)

    @property
    def slowness(self) -> float:
        """Return how many times longer than its processor time a step may take by the clock."""
        return _HEAVY_SLOWNESS if self.heavy else _SLOWNESS


class Worker(asyncio.Protocol):
    """One worker process and the socket to it; used for one message at a time."""

    def __init__(self, settings: WorkerSettings, files: socket.socket) -> None:
        self.killed = False
        self.retired = False  # it finishes its message, and takes no other
        self.layers: tuple[str, ...] = ()  # of its sandbox
        self.phrases = ""  # the engine that searches for phrases
        self._files = files  # the same socket as the transport's: only this one can send a file descriptor
        self._timeouts = settings.timeouts
        self._slowness = settings.slowness
        self._process: asyncio.subprocess.Process | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Started] = self._loop.create_future()
        self._done: asyncio.Future[bool] | None = None
        self._on_frame: OnFrame | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, settings: WorkerSettings) -> "Worker":
        """Start the process and wait until it is ready for its first message."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *settings.command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                cwd="/",
                env=environment(),
                start_new_session=settings.heavy,
            )
        worker = cls(settings, ours.dup())
        worker._process = process
        try:
            transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=ours)
            worker._transport = cast("asyncio.WriteTransport", transport)
            async with asyncio.timeout(_START_TIMEOUT):
                started = await worker._ready
        except (TimeoutError, EOFError):
            await worker.end()
            raise OSError("A worker process did not start; see its output in the log above.") from None
        except BaseException:
            await worker.end()
            raise
        if started.problem:
            await worker.end()
            raise ConfigurationError(started.problem)
        worker.layers, worker.phrases = started.layers, started.phrases
        if settings.heavy:  # not before: its code is read at full speed, so that guard starts as soon as without it
            _lower_priority(process.pid)
        return worker

    @property
    def usable(self) -> bool:
        return not self.killed and not self.retired and self._process is not None and self._process.returncode is None

    async def run(self, raw: RawMessage, on_frame: OnFrame, job: Job) -> bool:
        """Pass each step of one message to `on_frame`; return True if it was finished, False if it was handed over.

        A worker that is late or gone is killed; this raises WorkerFailed.
        """
        assert self._transport is not None
        file = raw.open_to_read()
        try:
            content = b"".join(raw.chunks()) if file is None else b""
            body = msgspec.msgpack.encode(replace(job, raw=content))
            self._on_frame, self._done = on_frame, self._loop.create_future()
            self._wait(self._timeouts.structure)
            self._send(body, file)
        finally:
            if file is not None:
                os.close(file)
        try:
            return await self._done
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
        except OSError:  # the worker has ended; the transport reports the same
            self._fail(FailureKind.CRASHED, "The worker process ended before it took the message.")
            return
        self._transport.write(body)

    def data_received(self, data: bytes) -> None:
        self._received += data
        latest: Frame | None = None
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4])
            if end > _MAX_FRAME:
                self._fail(FailureKind.CRASHED, "The worker process sent an invalid frame.")
                return
            if len(self._received) < end:
                break
            body = bytes(self._received[4:end])
            del self._received[:end]
            latest = self._take(body) or latest
        if latest is not None and not latest.last:  # steps come many at once: the clock is set for the last of them
            self._wait(self._timeouts.parse if latest.report.analyzer == STRUCTURE else self._timeouts.analyzer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.killed = True
        if not self._ready.done():
            self._ready.set_exception(EOFError())
        self._fail(FailureKind.CRASHED, "The worker process that examined the message crashed.")

    def _take(self, body: bytes) -> Frame | None:
        """Pass the steps of one batch on and return the last, or None if no caller waits for them."""
        if not self._ready.done():
            self._begin(body)
            return None
        if self._on_frame is None or self._done is None or self._done.done():
            return None
        try:
            frames = _FRAMES.decode(body)
        except msgspec.DecodeError:
            self._fail(FailureKind.CRASHED, "The worker process sent an invalid frame.")
            return None
        for frame in frames:
            self._on_frame(frame)
            if frame.last:
                self._done.set_result(not frame.handed_over)
                return frame
        return frames[-1] if frames else None

    def _begin(self, body: bytes) -> None:
        try:
            self._ready.set_result(msgspec.msgpack.decode(body, type=Started))
        except msgspec.DecodeError:
            self._ready.set_exception(EOFError())

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        until = self._loop.time() + seconds * self._slowness
        self._timer = self._loop.call_later(seconds, self._check_late, seconds, self._cpu_seconds(), until)

    def _check_late(self, seconds: float, before: float, until: float) -> None:
        """End a step that has used up its processor time, or its wall-clock time."""
        left = min(seconds - (self._cpu_seconds() - before), until - self._loop.time())
        if left <= 0:
            self._fail(FailureKind.TIMEOUT, f"A step of the examination took longer than {seconds:g} s.")
        else:
            self._timer = self._loop.call_later(max(left, _CLOCK_TICK), self._check_late, seconds, before, until)

    def _cpu_seconds(self) -> float:
        """Return the processor time of the worker so far, by the clock that the kernel keeps of each process."""
        assert self._process is not None
        try:
            return time.clock_gettime((~self._process.pid << 3) | _CPUCLOCK_SCHED)
        except OSError:
            return math.inf  # it has ended, as the socket reports too

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


def _lower_priority(pid: int) -> None:
    """Lower the priority of a process below that of this one.

    If the kernel schedules by sessions (sched(7), autogroup), nice counts within a session only. The priority of the
    session is lowered as well, but less, so that it does not starve beside other busy programs.
    """
    with suppress(OSError):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, pid, min(LOWEST_PRIORITY, own + NICE))
        Path(f"/proc/{pid}/autogroup").write_text(str(SESSION_NICE), "ascii")


def _absolute(folder: str) -> str:
    return str(Path(folder).resolve()) if folder else ""


class Lane:
    """The workers for one kind of message, and the requests that wait for them."""

    def __init__(self, name: str, count: int, settings: WorkerSettings) -> None:
        self.name = name
        self.count = count
        self.running = 0
        self.settings = settings
        self.queue: FairQueue[Worker] = FairQueue()

    @property
    def idle(self) -> int:
        return self.queue.idle

    @property
    def waiting(self) -> int:
        return self.queue.waiting


class Task(msgspec.Struct, frozen=True):
    """One message for a worker, the receiver of its frames, and its flow."""

    raw: RawMessage
    on_frame: OnFrame
    job: Job  # without the bytes of the message
    flow: Flow


class Renewal(msgspec.Struct, frozen=True):
    """New settings of workers, with which one worker has started."""

    pool: "WorkerPool"
    settings: WorkerSettings

    async def run(self) -> None:
        await self.pool.renew_all(self.settings)


class WorkerPool:
    """A fixed number of workers, some of them for heavy messages alone; one that ends is replaced in the background.

    Waiting requests take turns by tenant, scan source and client. A heavy message uses a worker for heavy ones only,
    and at most `heavy_places` of them wait or are examined at once. Beside `count` workers for light messages there is
    one more that only quick messages use, so that files which take longer than they look do not keep them waiting.
    """

    def __init__(
        self,
        count: int,
        memory: int,
        timeouts: Timeouts,
        rules: str = "",
        sandbox: SandboxMode = REQUIRED,
        *,
        domains: str = "",
        heavy: int = 0,
        heavy_places: int = 10,
    ) -> None:
        """Create `count` workers with `memory` MiB each; `rules` and `domains` are folders of the operator.

        Without workers for heavy messages every worker takes every message.
        """
        settings = WorkerSettings(memory, timeouts, _absolute(rules), sandbox, _absolute(domains))
        self._light = Lane("light", count + 1 if heavy else count, settings)
        self._heavy = Lane("heavy", heavy, settings.for_heavy()) if heavy else self._light
        self._light_turns = FairQueue([Turn() for _ in range(count)])
        self.heavy_places = heavy_places
        self.heavy_in_hand = 0
        self.heavy_refused = 0
        self.replaced = 0  # workers that ended or were killed
        self._replacing: set[asyncio.Task[None]] = set()
        self._all: dict[Worker, Lane] = {}
        self._stopped = False

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return (self._light,) if self._heavy is self._light else (self._light, self._heavy)

    async def start(self) -> None:
        await asyncio.gather(*(self._add(lane) for lane in self.lanes for _ in range(lane.count)))

    @property
    def heavy_count(self) -> int:
        """Return how many workers take heavy messages."""
        return self._heavy.count

    @property
    def layers(self) -> tuple[str, ...]:
        """Return the layers of the sandbox that every worker has; none where it is disabled."""
        sets = [worker.layers for worker in self._all]
        return tuple(layer for layer in sets[0] if all(layer in others for others in sets)) if sets else ()

    @property
    def phrases(self) -> str:
        """Return the engines that search for phrases in the workers: `vectorscan`, or the slower `re2`."""
        return " ".join(sorted({worker.phrases for worker in self._all}))

    async def stop(self) -> None:
        self._stopped = True
        await asyncio.gather(*self._replacing, return_exceptions=True)  # one cancelled halfway would leave a process
        await asyncio.gather(*(worker.end() for worker in self._all), return_exceptions=True)

    def require_room(self, raw: RawMessage) -> None:
        """Raise Overloaded if this message is heavy by its size, and the places for heavy messages are taken."""
        if raw.size > HEAVY_BYTES and self._heavy is not self._light:
            self._require_heavy_place()

    async def run(
        self,
        raw: RawMessage,
        on_frame: OnFrame,
        wanted: tuple[Observable, ...] = (),
        envelope: Envelope = NOBODY,
        *,
        flow: Flow = NO_FLOW,
        others: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        """Have the next free worker examine one message; raise Overloaded if it is heavy and there is no place."""
        task = Task(raw, on_frame, Job(b"", wanted, envelope, others=others), flow)
        if self._heavy is self._light:
            await self._run_in(self._light, task)
            return
        if raw.size <= HEAVY_BYTES and await self._run_light(task):
            return
        self._require_heavy_place()
        self.heavy_in_hand += 1
        try:
            await self._run_in(self._heavy, task)
        finally:
            self.heavy_in_hand -= 1

    async def _run_light(self, task: Task) -> bool:
        """Try a message on a worker for light ones; one that is not quick leaves a worker to those that are."""
        if is_quick(task.raw.size, task.raw.chunks()):
            return await self._run_in(self._light, task, seconds=QUICK_SECONDS, quick=True)
        turn = await self._light_turns.take(task.flow)
        try:
            return await self._run_in(self._light, task, seconds=LIGHT_SECONDS)
        finally:
            self._light_turns.give(turn)

    def _require_heavy_place(self) -> None:
        if self.heavy_in_hand >= self.heavy_places:
            self.heavy_refused += 1
            sentence = f"{self.heavy_in_hand} heavy messages are in processing, as many as may be; try again shortly."
            raise Overloaded(sentence, retry_after=random.randint(2, 10))  # noqa: S311 - jitter, not a secret

    async def _run_in(self, lane: Lane, task: Task, *, seconds: float = 0.0, quick: bool = False) -> bool:
        worker = await self._take(lane, task.flow)
        try:
            return await worker.run(task.raw, task.on_frame, replace(task.job, seconds=seconds, quick=quick))
        finally:
            if worker.usable:
                lane.queue.give(worker)
            else:
                self._replace(worker, lane)

    async def _take(self, lane: Lane, flow: Flow) -> Worker:
        while True:
            worker = await lane.queue.take(flow)
            if worker.usable:
                return worker
            self._replace(worker, lane)

    def _replace(self, worker: Worker, lane: Lane) -> None:
        if self._all.pop(worker, None) is None:
            return
        lane.running -= 1
        if self._stopped:
            return
        if worker.retired:
            self._in_background(worker.end())
            return
        self.replaced += 1
        self._in_background(self._renew(worker, lane))

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def prepare_renewal(self, memory: int, timeouts: Timeouts, rules: str) -> "Renewal":
        """Start one worker with other settings, as a test; raise OSError or ConfigurationError if it does not start."""
        settings = replace(self._light.settings, memory=memory, timeouts=timeouts, rules=_absolute(rules))
        await (await Worker.start(settings)).end()
        return Renewal(self, settings)

    async def renew_all(self, settings: WorkerSettings) -> None:
        """Replace the workers one by one, so that messages do not wait; each finishes its message first."""
        self._light.settings = settings
        if self._heavy is not self._light:
            self._heavy.settings = settings.for_heavy()
        for worker, lane in [*self._all.items()]:
            if worker not in self._all or self._stopped:
                continue  # it ended, and its successor has the new settings
            try:
                await self._add(lane)
            except (OSError, ConfigurationError) as error:
                log.warning("worker_cannot_start", reason=str(error))
                self._in_background(self._start_again(lane))
            worker.retired = True
            if lane.queue.remove(worker):
                self._replace(worker, lane)

    async def _renew(self, worker: Worker, lane: Lane) -> None:
        await worker.end()
        await self._start_again(lane)

    async def _start_again(self, lane: Lane) -> None:
        while not self._stopped:
            try:
                await self._add(lane)
            except (OSError, ConfigurationError) as error:
                log.warning("worker_cannot_start", reason=str(error))
                await asyncio.sleep(1.0)
            else:
                return

    async def _add(self, lane: Lane) -> None:
        worker = await Worker.start(lane.settings)
        if self._stopped:
            await worker.end()
            return
        self._all[worker] = lane
        lane.running += 1
        lane.queue.give(worker)
