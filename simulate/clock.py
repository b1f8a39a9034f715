"""An asyncio event loop whose clock jumps to the next timer: hours pass in seconds, and always in the same order."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

T = TypeVar("T")


class _NoNetwork(selectors.BaseSelector):
    """A selector that never waits: it advances the clock by the time-out instead."""

    def __init__(self) -> None:
        self.now = 0.0

    def register(self, fileobj: "FileDescriptorLike", events: int, data: object = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}

    def get_key(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("The simulation waits for something that no timer will bring: a deadlock.")
        self.now += max(0.0, timeout)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Runs timers in the order of their times; timers of the same time keep the order of the heap."""

    def __init__(self) -> None:
        self._network = _NoNetwork()
        super().__init__(self._network)

    def time(self) -> float:
        return self._network.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a simulated clock that starts at 0."""
    loop = SimulatedLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
