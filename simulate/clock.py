"""An asyncio event loop whose clock jumps to the next timer: hours pass in seconds, and always in the same order."""

import asyncio
import gc
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
# A run makes millions of small objects, nearly all without cycles.
COLLECT_AFTER = (200_000, 20, 100)


class _Call(asyncio.TimerHandle):
    """A callback that waits for its turn or its time."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...], context: Context | None) -> None:
        self._callback = callback
        self._args = args
        self._context = context or copy_context()
        self._cancelled = False

    def run(self) -> None:
        if not self._cancelled:
            self._context.run(self._callback, *self._args)

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()


def _nothing() -> None:
    """Stand for a cancelled callback, so that its objects are freed before its time."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order of their times; those of the same time in the order in which they were added."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._calls: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: object, context: Context | None = None) -> _Call:
        call = _Call(callback, args, context)
        self._calls.append(call)
        return call

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> _Call:
        call = _Call(callback, args, context)
        heapq.heappush(self._timers, (when, next(self._numbers), call))
        return call

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> _Call:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run all callbacks whose turn it is; if there is none, advance the clock to the next timer."""
        calls = self._calls
        if not calls:
            calls.append(self._next_timer())
        for _ in range(len(calls)):
            calls.popleft().run()

    def _next_timer(self) -> _Call:
        while self._timers:
            when, _, call = heapq.heappop(self._timers)
            if not call.cancelled():
                self._now = max(self._now, when)
                return call
        raise RuntimeError("The simulation waits for something that no timer will bring: a deadlock.")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a simulated clock that starts at 0."""
    loop = SimulatedLoop()
    asyncio.set_event_loop(loop)
    before = gc.get_threshold()
    gc.set_threshold(*COLLECT_AFTER)
    try:
        return loop.run_until_complete(main)
    finally:
        gc.set_threshold(*before)
        asyncio.set_event_loop(None)
        loop.close()
