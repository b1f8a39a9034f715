"""A pool of worker processes that can be killed: hostile bytes are parsed there and never in guard's own process."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from mailwarden.analysis.analyzer import RawMessage
from mailwarden.analysis.examination import Frame, Job
from mailwarden.model.evidence import FailureKind
from mailwarden.telemetry.logs import get_logger

_START_TIMEOUT = 30.0
_MAX_FRAME = 64 * 1024 * 1024

READY = b"\0\0\0\0"  # what a worker sends once it has read its own code; importing takes longer than any message

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
    analyzer: float = 5.0


class Worker:
    """One worker process and the pipes to it; used for one message at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stdin
        assert process.stdout
        self._jobs, self._frames = process.stdin, process.stdout
        self.killed = False

    @classmethod
    async def start(cls, memory: int) -> "Worker":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mailwarden.analysis.worker",
            str(memory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1024 * 1024,
        )
        worker = cls(process)
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                await worker._frames.readexactly(len(READY))
        except (TimeoutError, EOFError):
            await worker.end()
            raise OSError("A worker process did not start; its own words are in the log above.") from None
        return worker

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def examine(self, raw: RawMessage, patience: Patience) -> AsyncIterator[Frame]:
        """Yield the frames of one message; a worker that is late or gone is killed, and WorkerFailed says so."""
        try:
            async with asyncio.timeout(patience.structure):
                self._send(raw)
                await self._jobs.drain()
                frame = await self._next()
            yield frame
            wait = patience.parse
            while not frame.last:
                async with asyncio.timeout(wait):
                    frame = await self._next()
                yield frame
                wait = patience.analyzer
        except TimeoutError:
            self.kill()
            raise WorkerFailed(FailureKind.TIMEOUT, "The message took too long to examine.") from None
        except (OSError, EOFError, msgspec.DecodeError):
            self.kill()
            raise WorkerFailed(FailureKind.CRASHED, "The worker process that examined the message crashed.") from None
        except BaseException:
            self.kill()  # left in mid-message, its next frame would belong to another message
            raise

    def _send(self, raw: RawMessage) -> None:
        job = Job(b"", str(raw.path)) if raw.path else Job(b"".join(raw.chunks()))
        body = msgspec.msgpack.encode(job)
        self._jobs.writelines([len(body).to_bytes(4), body])

    async def _next(self) -> Frame:
        length = int.from_bytes(await self._frames.readexactly(4))
        if length > _MAX_FRAME:
            raise EOFError
        return msgspec.msgpack.decode(await self._frames.readexactly(length), type=Frame)

    def kill(self) -> None:
        self.killed = True
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        self.kill()
        await self._process.wait()


class WorkerPool:
    """A fixed number of workers; who ends is replaced in the background."""

    def __init__(self, count: int, memory: int, patience: Patience) -> None:
        self._count = count
        self._memory = memory
        self._patience = patience
        self._idle: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()
        self._replacing: set[asyncio.Task[None]] = set()
        self._all: set[Worker] = set()
        self._stopped = False

    async def start(self) -> None:
        await asyncio.gather(*(self._add() for _ in range(self._count)))

    async def stop(self) -> None:
        self._stopped = True
        for task in self._replacing:
            task.cancel()
        await asyncio.gather(*(worker.end() for worker in self._all), return_exceptions=True)

    async def examine(self, raw: RawMessage) -> AsyncIterator[Frame]:
        """Yield the frames of one message, from the next free worker."""
        worker = await self._take()
        try:
            async for frame in worker.examine(raw, self._patience):
                yield frame
        finally:
            self._give_back(worker)

    async def _take(self) -> Worker:
        while True:
            worker = await self._idle.get()
            if worker.alive:
                return worker
            self._replace(worker)

    def _give_back(self, worker: Worker) -> None:
        if worker.alive and not worker.killed:
            self._idle.put_nowait(worker)
        else:
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
            except OSError as error:
                log.warning("worker_cannot_start", error=str(error))
                await asyncio.sleep(1.0)
            else:
                return

    async def _add(self) -> None:
        worker = await Worker.start(self._memory)
        self._all.add(worker)
        self._idle.put_nowait(worker)
