"""The guards as abby sees them: their addresses, their status and their load."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from mailwarden.errors import Overloaded
from mailwarden.hop.guard_health import Health
from mailwarden.hop.records import GuardStatus
from mailwarden.hop.transport import NoStatus, Transport
from mailwarden.settings.effective import Setting
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics, Samples
from mailwarden.telemetry.periodic_task import end_tasks

ASK_TIMEOUT = 1.0
ASK_EVERY = 1.0  # on average
ASK_JITTER = 0.25
SHARED_FOR = 0.25
SMOOTHING = 0.2  # weight of a new status

log = get_logger("guards")


class Guard:
    """One guard: its address and transport, its last status and health, and the messages it has from this abby."""

    __slots__ = (
        "_others",
        "address",
        "health",
        "in_flight",
        "in_flight_when_asked",
        "known",
        "name",
        "rejects_us",
        "status",
        "transport",
    )

    def __init__(self, address: str, transport: Transport) -> None:
        self.address = address.rstrip("/")
        self.name = urlsplit(self.address).netloc
        self.transport = transport
        self.status: GuardStatus | None = None
        self.health = Health()
        self.known = False  # it has answered once
        self.in_flight = 0
        self.in_flight_when_asked = 0
        self._others = 0.0  # messages of other abbys and scan sources, smoothed
        self.rejects_us = False  # it rejected the names of abby's certificate

    @property
    def usable(self) -> bool:
        """Return whether the guard answered last time and accepts messages."""
        return self.status is not None and self.status.scanning_enabled and not self.status.stopping

    def take_status(self, status: GuardStatus | None) -> None:
        """Store the answer to `in_flight_when_asked`, or that there was none."""
        if status is not None:
            others = float(max(0, status.in_processing - self.in_flight_when_asked))
            self._others = others if self.status is None else self._others + SMOOTHING * (others - self._others)
        self.status = status

    @property
    def load(self) -> float:
        """Return its load: the messages of this abby now, and those of others as the last statuses show them.

        A single status is no measure of the next second: a guard answers many messages in the meantime. Following it,
        all abbys would take the same guards until the next one.
        """
        if self.status is None:
            return float(self.in_flight)
        return (self._others + self.in_flight) / max(1, self.status.max_in_processing)

    @property
    def full_of_ours(self) -> bool:
        """Return whether messages of this abby alone fill the guard, so that it would reject more."""
        return self.status is not None and self.in_flight >= self.status.max_in_processing + self.status.max_waiting

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Count one message of this abby as load while the block runs."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1


class GuardWatch:
    """Asks every guard for its status about once a second or on demand, never twice at once."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self.guards = tuple(guards)
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def statuses(self) -> tuple[GuardStatus | None, ...]:
        return tuple(guard.status for guard in self.guards)

    def show(self, metrics: Metrics) -> None:
        """Add a metric for each guard."""
        metrics.read_gauge(
            "guard_up", "Whether a guard answers abby and accepts messages: 1 or 0.", self._samples, "guard"
        )

    def _samples(self) -> Samples:
        return [((guard.name,), float(guard.usable)) for guard in self.guards]

    @property
    def any_usable(self) -> bool:
        return any(guard.usable for guard in self.guards)

    def require_room(self) -> None:
        """Raise Overloaded if every guard would reject: an early rejection costs other callers least."""
        if all(guard.full_of_ours for guard in self.guards):
            retry_after = self._random.randint(1, 5)
            raise Overloaded("All guards are at their maximum; try again shortly.", retry_after=retry_after)

    async def look(self) -> None:
        """Ask all guards now, unless they were asked within a quarter of a second."""
        async with self._asking:
            loop = asyncio.get_running_loop()
            if loop.time() - self._asked_at < SHARED_FOR:
                return
            await asyncio.gather(*(self._ask(guard) for guard in self.guards))
            self._asked_at = loop.time()

    async def configuration_of(self, guard: Guard) -> Sequence[Setting]:
        """Return a guard's running configuration, empty if it does not answer."""
        try:
            async with asyncio.timeout(ASK_TIMEOUT):
                return await guard.transport.settings()
        except TimeoutError:
            return ()

    async def start(self, observe: Callable[[], object]) -> None:
        """Ask now and then about every second; call `observe` after each round."""
        await self.look()
        observe()
        self._task = asyncio.create_task(self._run(observe), name="guard watch")

    async def stop(self) -> None:
        await end_tasks(self._task)

    async def _run(self, observe: Callable[[], object]) -> None:
        """Ask at other moments than other abbys: with the same statuses they would all prefer the same guards."""
        wait = self._random.uniform(0.0, ASK_EVERY)
        while True:
            await asyncio.sleep(wait)
            wait = ASK_EVERY * self._random.uniform(1.0 - ASK_JITTER, 1.0 + ASK_JITTER)
            try:
                await self.look()
                observe()
            except Exception:  # an error must not stop the loop
                log.exception("guard_status_failed")

    async def _ask(self, guard: Guard) -> None:
        before = guard.status
        try:
            async with asyncio.timeout(ASK_TIMEOUT):
                guard.in_flight_when_asked = guard.in_flight
                answer = await guard.transport.status()
            guard.take_status(answer.status)
            self._note_rejection(guard, rejected=answer.rejects_us)
        except (NoStatus, TimeoutError) as error:
            guard.take_status(None)
            if before is not None:
                log.warning("guard_lost", guard=guard.name, reason=str(error) or type(error).__name__)
        if before is None and guard.status is not None:
            log.info("guard_found", guard=guard.name)
            if guard.known:  # a guard that has just started needs more time for each message, and has no connections
                guard.health.return_at(asyncio.get_running_loop().time())
            guard.known = True

    def _note_rejection(self, guard: Guard, *, rejected: bool) -> None:
        if rejected and not guard.rejects_us:
            advice = "Add a name of tls.certificate in abby.yml to tls.clientNames in that guard's guard.yml."
            log.error("guard_rejected_certificate", guard=guard.name, advice=advice)
        guard.rejects_us = rejected
