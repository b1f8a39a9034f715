"""Simulated guards: the real admission control around made-up work, and the transports of abbys to them."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import NoReturn

from mailwarden.abby.guard_frames import SILENT_SECONDS
from mailwarden.abby.guard_http import CONNECT_SECONDS, died_unanswered
from mailwarden.abby.guard_transport import NoStatus, Progress, Refused, ScanRequest, StatusAnswer, Submission
from mailwarden.errors import CoreUnreachable, Overloaded, ShuttingDown
from mailwarden.guard.admission import Admission
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.settings.effective import Setting
from mailwarden.wire.guard import GuardStatus
from mailwarden.wire.scanning import MessageAnalysisResult

ONE_WAY = 0.0005  # seconds, of the network
LOOP_COST = 0.0003  # seconds of guard's event loop for each attempt, also for a rejected one
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class State(Enum):
    UP = auto()
    STOPPING = auto()  # finishes its messages, rejects new ones
    DOWN = auto()  # no process listens
    CUT_OFF = auto()  # the network drops every packet


@dataclass(frozen=True, slots=True)
class GuardSize:
    """The size of a guard: messages at full speed at once, and messages in processing at which it rejects."""

    slots: int = 4
    maximum: int = 8


class KilledError(Exception):
    """The guard was killed while it processed the message."""


class Processes:
    """The processes of a guard between two starts: real admission, and slots for which admitted messages wait."""

    def __init__(self, size: GuardSize, source: random.Random) -> None:
        self.admission = Admission(
            maximum=size.maximum, threshold=size.maximum, max_delay=0.0, max_bytes=1 << 40, source=source
        )
        self.waits: dict[asyncio.Future[None], None] = {}  # of admitted messages, for a slot or for their work
        self._loop = asyncio.get_running_loop()
        self._free = size.slots
        self._queue: deque[asyncio.Future[None]] = deque()

    async def process(self, work: Callable[[], float]) -> None:
        """Process a message; `work` returns its seconds when it gets a slot."""
        async with self.admission.admitted(1):
            if self._free:
                self._free -= 1
            else:
                await self._wait_for_slot()
            try:
                future = self._loop.create_future()
                timer = self._loop.call_later(work(), future.set_result, None)
                try:
                    await self._wait(future)
                finally:
                    timer.cancel()
            finally:
                self._release()

    def kill(self) -> None:
        for future in list(self.waits):
            if not future.done():
                future.set_exception(KilledError())

    async def _wait_for_slot(self) -> None:
        future = self._loop.create_future()
        self._queue.append(future)
        try:
            await self._wait(future)
        except asyncio.CancelledError:
            if not future.cancelled():  # it got the slot at the same moment
                self._release()
            raise

    async def _wait(self, future: asyncio.Future[None]) -> None:
        self.waits[future] = None
        try:
            await future
        finally:
            del self.waits[future]

    def _release(self) -> None:
        """Give the slot to the next message that waits."""
        while self._queue:
            future = self._queue.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._free += 1


class SimulatedGuard:
    """One guard: `slots` messages progress at once, the others in processing wait for a slot."""

    def __init__(self, name: str, size: GuardSize, source: random.Random) -> None:
        self.name = name
        self.size = size
        self.state = State.UP
        self.slowness = 1.0
        self.cold_until = 0.0
        self.cut_off_since = 0.0
        self.attempts: list[float] = []  # their times
        self.returned: list[float] = []
        self._random = source
        self._loop = asyncio.get_running_loop()
        self._busy_until = 0.0
        self._processes = Processes(size, source)

    @property
    def admission(self) -> Admission:
        return self._processes.admission

    def is_down(self) -> bool:
        return self.state is State.DOWN

    def is_cut_off(self) -> bool:
        return self.state is State.CUT_OFF

    @property
    def speed(self) -> float:
        """Return the messages that it processes now, as a share of those of a warm guard."""
        if self.state is not State.UP:
            return 0.0
        return 1.0 / (self.slowness * self._coldness)

    @property
    def room(self) -> int:
        """Return how many more messages it would accept now."""
        return max(0, self.admission.maximum - self.admission.in_processing) if self.state is State.UP else 0

    @property
    def queue(self) -> int:
        return self.admission.in_processing

    async def process(self, work: float) -> None:
        """Process a message that needs `work` seconds of a slot."""
        await self._processes.process(lambda: work * self.slowness * self._coldness)

    @property
    def _coldness(self) -> float:
        return 2.0 if self._loop.time() < self.cold_until else 1.0

    def wait_for_loop(self) -> float:
        """Return how long an attempt waits for guard's event loop, which does one thing at a time."""
        now = self._loop.time()
        self._busy_until = max(now, self._busy_until) + LOOP_COST
        return self._busy_until - now

    def kill(self) -> None:
        self.state = State.DOWN
        self._processes.kill()

    def cut_off(self) -> None:
        self.state = State.CUT_OFF
        self.cut_off_since = self._loop.time()

    def start(self, size: GuardSize | None = None, cold_seconds: float = 5.0) -> None:
        """Start with empty caches: each message needs twice its time for some seconds."""
        self.size = size or self.size
        self._processes = Processes(self.size, self._random)
        self.state = State.UP
        now = self._loop.time()
        self.cold_until = now + cold_seconds
        self.returned.append(now)

    async def restart(self, down_seconds: float, size: GuardSize | None = None) -> None:
        """Finish the messages in processing, be down for a time, and start again."""
        self.state = State.STOPPING
        while self._processes.waits:
            await asyncio.wait(list(self._processes.waits))
        self.state = State.DOWN
        await asyncio.sleep(down_seconds)
        self.start(size)

    def status(self) -> GuardStatus:
        return GuardStatus(
            name=self.name,
            version="1",
            in_processing=self.admission.in_processing,
            max_in_processing=self.admission.maximum,
            engines=(),
            database_up=True,
            scanning_enabled=True,
            stopping=self.state is State.STOPPING,
            max_waiting=self.admission.max_waiting,
        )


class SimulatedTransport:
    """Implements `Transport` with the errors of the real ones; `work` has the seconds of each message by its number."""

    in_process = False

    def __init__(self, guard: SimulatedGuard, work: Sequence[float]) -> None:
        self._guard = guard
        self._work = work

    async def submit(
        self, submission: Submission, request: ScanRequest, deadline: float, traceparent: str
    ) -> MessageAnalysisResult:
        guard = self._guard
        guard.attempts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(ONE_WAY + guard.wait_for_loop())
        if guard.is_cut_off():
            await self._stay_unheard()
        if guard.is_down():
            raise Refused(CoreUnreachable("down"))
        if guard.state is State.STOPPING:
            raise Refused(ShuttingDown("stopping"))
        try:
            await guard.process(self._work[request.ggrid.int])
        except Overloaded as full:
            raise Refused(full) from None
        except KilledError:
            raise died_unanswered("ConnectionResetError") from None
        if guard.is_cut_off():
            await self._stay_unheard()
        await asyncio.sleep(ONE_WAY)
        return MessageAnalysisResult(request.ggrid, MOMENT, MOMENT, Decision.DELIVER, Verdict.CLEAN, ())

    async def _stay_unheard(self) -> NoReturn:
        """Wait as the real transports do: for the open connection, and after its end for a new one."""
        left = self._guard.cut_off_since + SILENT_SECONDS - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(left)
            raise died_unanswered("TimeoutError")
        await asyncio.sleep(CONNECT_SECONDS)
        raise Refused(CoreUnreachable("no route"))

    def watch(
        self, submission: Submission, request: ScanRequest, deadline: float, *, stored: bool
    ) -> AbstractAsyncContextManager[Progress]:
        raise NotImplementedError("no user watches a simulated message")

    async def status(self) -> StatusAnswer:
        guard = self._guard
        await asyncio.sleep(CONNECT_SECONDS if guard.state is State.CUT_OFF else ONE_WAY * 2)
        if guard.state in (State.CUT_OFF, State.DOWN):
            raise NoStatus("ClientConnectorError")
        return StatusAnswer(guard.status())

    async def settings(self) -> Sequence[Setting]:
        return ()
