"""Checks every second whether the engines answer, so that the status is current between scans."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.engines.engine import AnyEngine, EngineInfo
from mailwarden.hop.records import EngineState
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics, Samples

PERIOD = 1.0
CHECK_TIMEOUT = 3.0

log = get_logger(__name__)


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
            state = _down(engine, error.sentence)
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
