"""Whether the engines answer: asked every second, so that status tells the truth between scans too."""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Protocol

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.analysis.registry import is_required
from mailwarden.telemetry.logs import get_logger
from mailwarden.wire.guard import EngineState

PERIOD = 1.0
PATIENCE = 3.0

# `ClamAV 1.4.3/27852/Sat Nov 14 09:35:12 2026`: the version, the number of the signatures, when those were made.
_WITH_SIGNATURES = re.compile(r"([^/]{1,60})/(\d{1,12})/(.{1,60})")

log = get_logger(__name__)


class Checked(Protocol):
    """What can be asked whether it works: an engine, or the DNS resolver."""

    name: ClassVar[str]

    async def check(self) -> str: ...


class EngineWatch:
    """Keeps the last known state of each engine."""

    def __init__(self, engines: Sequence[Checked]) -> None:
        self._engines = tuple(engines)
        self._states = {engine.name: _down(engine, "not asked yet") for engine in engines}
        self._logged: dict[str, bool] = {}  # what the log says of each engine; nothing before the first answer

    @property
    def states(self) -> tuple[EngineState, ...]:
        return tuple(self._states.values())

    def is_up(self, name: str) -> bool:
        return self._states[name].up

    async def look(self) -> None:
        """Ask every engine once."""
        await asyncio.gather(*(self._look_at(engine) for engine in self._engines))

    async def run(self) -> None:
        """Ask again and again until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(PERIOD)

    async def _look_at(self, engine: Checked) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                state = state_of(engine, await engine.check())
        except EngineFailed as error:
            state = _down(engine, error.sentence)
        except TimeoutError:
            state = _down(engine, f"did not answer within {PATIENCE:.0f} s")
        if state.up != self._logged.get(engine.name):
            self._logged[engine.name] = state.up
            tell = log.info if state.up else log.warning
            tell("engine_changed", engine=engine.name, up=state.up, detail=state.detail)
        self._states[engine.name] = state


def state_of(engine: Checked, said: str) -> EngineState:
    """Return the state of an engine that answered, with its version and the age of its signatures where it has any."""
    match = _WITH_SIGNATURES.fullmatch(said)
    return EngineState(
        name=engine.name,
        up=True,
        required=is_required(engine.name),
        detail=said,
        version=match[1] if match else said,
        signatures=match[2] if match else "",
        signatures_made=moment_of(match[3]) if match else None,
    )


def moment_of(text: str) -> datetime | None:
    """Read clamd's date; it names no time zone, and writes the time of its machine, which is taken for UTC."""
    try:
        return datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return None


def _down(engine: Checked, detail: str) -> EngineState:
    return EngineState(name=engine.name, up=False, required=is_required(engine.name), detail=detail)
