"""The guards as abby sees them: their status, and the order in which to ask them."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from mailwarden.abby.guard_transport import NoStatus, Transport
from mailwarden.errors import Overloaded
from mailwarden.settings.effective import Setting
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics, Samples
from mailwarden.telemetry.periodic_task import end_tasks
from mailwarden.wire.guard import GuardStatus

ASK_TIMEOUT = 1.0
ASK_EVERY = 1.0
SHARED_FOR = 0.25

log = get_logger("guards")


class Guard:
    """One guard: its address and transport, its last status, and the number of messages it has from this abby."""

    __slots__ = ("address", "in_flight", "in_flight_when_asked", "rejects_us", "status", "transport")

    def __init__(self, address: str, transport: Transport) -> None:
        self.address = address.rstrip("/")
        self.transport = transport
        self.status: GuardStatus | None = None
        self.in_flight = 0
        self.in_flight_when_asked = 0
        self.rejects_us = False  # it rejected the names of abby's certificate

    @property
    def name(self) -> str:
        return urlsplit(self.address).netloc

    @property
    def usable(self) -> bool:
        """Return whether the guard answered last time and accepts messages."""
        return self.status is not None and self.status.scanning_enabled and not self.status.stopping

    @property
    def load(self) -> float:
        """Return its load, including messages sent since its last status."""
        if self.status is None:
            return float(self.in_flight)
        others = max(0, self.status.in_processing - self.in_flight_when_asked)
        return (others + self.in_flight) / max(1, self.status.max_in_processing)

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
    """Asks every guard for its status once a second or on demand, never twice at once."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self.guards = tuple(guards)
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
            retry_after = random.randint(1, 5)  # noqa: S311 - jitter, not a secret
            raise Overloaded("All guards are at their maximum; try again shortly.", retry_after=retry_after)

    def candidates(self) -> list[Guard]:
        """Return all guards: usable first, then least loaded, ties in random order."""
        return sorted(self.guards, key=lambda guard: (not guard.usable, guard.load, random.random()))  # noqa: S311

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
        """Ask now and then every second; call `observe` after each round."""
        await self.look()
        observe()
        self._task = asyncio.create_task(self._run(observe), name="guard watch")

    async def stop(self) -> None:
        await end_tasks(self._task)

    async def _run(self, observe: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(ASK_EVERY)
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
            guard.status = answer.status
            self._note_rejection(guard, rejected=answer.rejects_us)
        except (NoStatus, TimeoutError) as error:
            guard.status = None
            if before is not None:
                log.warning("guard_lost", guard=guard.name, reason=str(error) or type(error).__name__)
        if before is None and guard.status is not None:
            log.info("guard_found", guard=guard.name)

    def _note_rejection(self, guard: Guard, *, rejected: bool) -> None:
        if rejected and not guard.rejects_us:
            advice = "Add a name of tls.certificate in abby.yml to tls.clientNames in that guard's guard.yml."
            log.error("guard_rejected_certificate", guard=guard.name, advice=advice)
        guard.rejects_us = rejected
