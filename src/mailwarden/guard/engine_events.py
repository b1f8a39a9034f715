"""Records an event for each change of an engine's state; changes wait while the database is down."""

import asyncio
from collections import deque
from datetime import UTC, datetime

from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable
from mailwarden.events.catalogue import EngineDown, EngineUp, short
from mailwarden.events.outbox import NewEvent, new_event, record
from mailwarden.hop.records import EngineState
from mailwarden.telemetry.periodic_task import end_tasks

RETRY = 2.0
MAX_WAITING = 1_000  # then the oldest are dropped
_BATCH = 100


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
