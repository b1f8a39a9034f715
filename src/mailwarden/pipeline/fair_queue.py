"""Decides which message is next: tenants, scan sources and clients take turns, and heavy messages wait apart.

Heavy messages have workers of their own at a lower priority, and few turns at an engine, so that other messages do not
wait for them.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from mailwarden.model.scan import Flow

T = TypeVar("T")

# Each level of a flow takes turns within the level above it.
NO_FLOW: Flow = ("", "", "")


class RoundRobin(Generic[T]):
    """Items by key, given out one key after the other; the items of a key in the order they came."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, RoundRobin[T] | deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, keys: tuple[str, ...], item: T) -> None:
        first, *rest = keys
        place = self._waiting.get(first)
        if place is None:
            place = self._waiting[first] = RoundRobin() if rest else deque()
        if isinstance(place, RoundRobin):
            place.add(tuple(rest), item)
        else:
            place.append(item)
        self._count += 1

    def next(self) -> T:
        """Return the next item; the key it came from goes to the end of the line."""
        key, place = next(iter(self._waiting.items()))
        item = place.next() if isinstance(place, RoundRobin) else place.popleft()
        self._count -= 1
        if place:
            self._waiting.move_to_end(key)
        else:
            del self._waiting[key]
        return item


class Usable(Protocol):
    @property
    def usable(self) -> bool: ...


W = TypeVar("W", bound=Usable)


class Turn:
    """The right to ask an engine; there are as many as may ask at once."""

    usable = True


class FairQueue(Generic[W]):
    """Idle workers and the requests that wait for one."""

    def __init__(self, idle: Iterable[W] = ()) -> None:
        self._idle: list[W] = list(idle)
        self._waiting: RoundRobin[asyncio.Future[W]] = RoundRobin()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> int:
        return len(self._idle)

    async def take(self, flow: Flow) -> W:
        """Wait for a worker; the last that became idle is taken first, as its memory is warm."""
        if self._idle:
            return self._idle.pop()
        turn: asyncio.Future[W] = asyncio.get_running_loop().create_future()
        self._waiting.add(flow, turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(turn.result())  # it was this request's turn just when its time was over
            raise

    def remove(self, worker: W) -> bool:
        """Remove an idle worker; return whether it was idle."""
        if worker not in self._idle:
            return False
        self._idle.remove(worker)
        return True

    def give(self, worker: W) -> None:
        """Hand a worker to the next request that still waits, or keep it."""
        while self._waiting:
            turn = self._waiting.next()
            if not turn.done():
                turn.set_result(worker)
                return
        self._idle.append(worker)
