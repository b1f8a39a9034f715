"""Checks every second whether the engines answer, so that the status is current, and records their changes as events.

Events wait while the database is down.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.database.pool import Database
from mailwarden.engines.engine import AnyEngine, EngineInfo
from mailwarden.errors import StorageUnavailable
from mailwarden.events.catalogue import EngineDown, EngineUp, short
from mailwarden.events.outbox import NewEvent, new_event, record
from mailwarden.hop.records import EngineState
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics, Samples
from mailwarden.telemetry.periodic_task import end_tasks

PERIOD = 1.0
CHECK_TIMEOUT = 3.0
log = get_logger(__name__)
RETRY = 2.0
MAX_WAITING = 1_000  # then the oldest are dropped
_BATCH = 100


class EngineWatch:
    """Keeps the last known state of each engine."""

    def __init__(
        self,
        engines: Sequence[AnyEngine],
        metrics: Metrics,
        on_change: Callable[[EngineState], None] = lambda _: None,
    ) -> None:
        self._on_change = on_change
        self.engines = tuple(engines)
        self._states = {engine.name: _down(engine, "not checked yet") for engine in engines}
        self._logged: dict[str, bool] = {}  # the last logged state of each engine
        self._seconds = metrics.histogram("engine_check_seconds", "Seconds an engine took to answer a check.", "engine")
        metrics.read_gauge("engine_up", "Whether an engine answers: 1 or 0.", self._each(_up), "engine")
        metrics.read_gauge(
            "engine_signatures_age_seconds", "Age of an engine's signatures.", self._each(_signatures_age), "engine"
        )
        metrics.read_gauge(
            "engine_info", "1, with the version that an engine reports.", self._versions, "engine", "version"
        )

    @property
    def states(self) -> tuple[EngineState, ...]:
        return tuple(self._states.values())

    def use(self, engines: Sequence[AnyEngine]) -> None:
        """Watch other engines; one with a known name has its last state until the next check."""
        self.engines = tuple(engines)
        self._states = {
            engine.name: self._states.get(engine.name, _down(engine, "not checked yet")) for engine in engines
        }

    async def check(self) -> None:
        """Check every engine once."""
        await asyncio.gather(*(self._check_engine(engine) for engine in self.engines))

    async def run(self) -> None:
        """Check the engines until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(PERIOD)

    async def _check_engine(self, engine: AnyEngine) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                state = state_of(engine, await engine.check())
        except EngineFailed as error:
            state = _down(engine, str(error))
        except TimeoutError:
            state = _down(engine, f"did not answer within {CHECK_TIMEOUT:.0f} s")
        self._seconds.labels(engine.name).observe(time.perf_counter() - began)
        if state.up != self._logged.get(engine.name):
            self._logged[engine.name] = state.up
            write = log.info if state.up else log.warning
            write("engine_changed", engine=engine.name, up=state.up, detail=state.detail)
            self._on_change(state)
        if engine in self.engines:  # a reload may have replaced it meanwhile
            self._states[engine.name] = state

    def _each(self, read: Callable[[EngineState], float | None]) -> Callable[[], Samples]:
        return lambda: [((state.name,), value) for state in self.states if (value := read(state)) is not None]

    def _versions(self) -> Samples:
        return [((state.name, state.version), 1.0) for state in self.states if state.version]


def _up(state: EngineState) -> float:
    return float(state.up)


def _signatures_age(state: EngineState) -> float | None:
    made = state.signatures_made
    return None if made is None else (datetime.now(UTC) - made).total_seconds()


def state_of(engine: AnyEngine, info: EngineInfo) -> EngineState:
    """Return the state of an engine that answered."""
    return EngineState(
        name=engine.name,
        up=True,
        required=engine.required,
        detail=info.detail,
        version=info.version,
        signatures=info.signatures,
        signatures_made=info.signatures_made,
    )


def _down(engine: AnyEngine, detail: str) -> EngineState:
    return EngineState(name=engine.name, up=False, required=engine.required, detail=detail)


class EngineEvents:
    """The events of one guard. A retry after a lost connection repeats an event with the same id."""

    def __init__(self, database: Database, guard: str) -> None:
        self._database = database
        self._guard = guard
        self._waiting: deque[NewEvent] = deque(maxlen=MAX_WAITING)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="engine events")

    async def stop(self) -> None:
        await end_tasks(self._task)
        self._task = None

    def changed(self, state: EngineState) -> None:
        """Queue the event of a new state; this never waits and never fails."""
        kind = EngineUp if state.up else EngineDown
        data = kind(self._guard, state.name, state.required, short(state.detail), datetime.now(UTC))
        self._waiting.append(new_event(data, None, f"{self._guard}/{state.name}"))
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._write([self._waiting[index] for index in range(min(_BATCH, len(self._waiting)))])

    async def _write(self, batch: list[NewEvent]) -> None:
        try:
            async with self._database.connection() as connection:
                await record(connection, batch)
        except StorageUnavailable:
            await asyncio.sleep(RETRY)
            return
        written = {event.id for event in batch}
        while self._waiting and self._waiting[0].id in written:  # others were dropped meanwhile
            self._waiting.popleft()
