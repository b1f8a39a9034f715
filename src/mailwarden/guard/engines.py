"""Whether the engines answer: asked every second, so that status tells the truth between scans too."""

import asyncio
from collections.abc import Sequence

from mailwarden.analysis.analyzer import EngineAnalyzer, EngineFailed
from mailwarden.analysis.registry import is_required
from mailwarden.telemetry.logs import get_logger
from mailwarden.wire.guard import EngineState

PERIOD = 1.0
PATIENCE = 3.0

log = get_logger(__name__)


class EngineWatch:
    """Keeps the last known state of each engine."""

    def __init__(self, engines: Sequence[EngineAnalyzer]) -> None:
        self._engines = tuple(engines)
        self._states = {engine.name: _state(engine, "not asked yet", up=False) for engine in engines}

    @property
    def states(self) -> tuple[EngineState, ...]:
        return tuple(self._states.values())

    async def look(self) -> None:
        """Ask every engine once."""
        await asyncio.gather(*(self._look_at(engine) for engine in self._engines))

    async def run(self) -> None:
        """Ask again and again until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(PERIOD)

    async def _look_at(self, engine: EngineAnalyzer) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                state = _state(engine, await engine.check(), up=True)
        except EngineFailed as error:
            state = _state(engine, error.sentence, up=False)
        except TimeoutError:
            state = _state(engine, f"did not answer within {PATIENCE:.0f} s", up=False)
        if state.up != self._states[engine.name].up:
            log.warning("engine_changed", engine=engine.name, up=state.up, detail=state.detail)
        self._states[engine.name] = state


def _state(engine: EngineAnalyzer, detail: str, *, up: bool) -> EngineState:
    return EngineState(name=engine.name, up=up, required=is_required(engine.name), detail=detail)
