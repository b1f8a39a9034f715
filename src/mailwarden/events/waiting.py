"""Long polling: one task of the process looks for new events while clients wait; a waiting client has no connection."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from mailwarden.errors import Overloaded, StorageUnavailable
from mailwarden.events.reader import EventReader, Filter
from mailwarden.telemetry.periodic_task import end_tasks

PERIOD = 0.25  # seconds between two looks
MAX_WAITING = 500


@dataclass(eq=False, slots=True)
class _Client:
    wanted: Filter
    after: int
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class EventWatch:
    """Wakes waiting clients when an event may be for them."""

    def __init__(self, reader: EventReader, period: float = PERIOD, max_waiting: int = MAX_WAITING) -> None:
        self.is_stopping: Callable[[], bool] = lambda: False  # of the process: clients wait no longer then
        self._reader = reader
        self._period = period
        self._max_waiting = max_waiting
        self._clients: set[_Client] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return len(self._clients)

    async def wait(self, wanted: Filter, after: int, seconds: float) -> bool:
        """Wait until an event after this number may match; return False if the time is over or the process stops."""
        if len(self._clients) >= self._max_waiting:
            raise Overloaded(f"{self._max_waiting} clients wait for events already; try again, or without `wait`.")
        client = _Client(wanted, after)
        self._clients.add(client)
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run(), name="event watch")
            async with asyncio.timeout(seconds):
                await client.wake.wait()
        except TimeoutError:
            return False
        else:
            return not self.is_stopping()
        finally:
            self._clients.discard(client)

    async def stop(self) -> None:
        await end_tasks(self._task)

    async def _run(self) -> None:
        while self._clients:
            if self.is_stopping():
                for client in self._clients:
                    client.wake.set()
            else:
                with suppress(StorageUnavailable):  # the client's own read reports it
                    await self._look()
            await asyncio.sleep(self._period)

    async def _look(self) -> None:
        """Wake the clients for whom there may be a new event; one query serves all of them."""
        clients = tuple(self._clients)
        settled, start = await self._reader.settled(), min(client.after for client in clients)
        if settled <= start:
            return
        kinds = await self._reader.new_kinds(start, settled)
        for client in clients:
            if client.after < settled and any(client.wanted.matches(tenant, kind) for tenant, kind in kinds):
                client.wake.set()
            client.after = max(client.after, settled)
