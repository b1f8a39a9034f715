"""Keeps figures of a scope and a period for some seconds: every open dashboard asks for the same ones."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from mailwarden.history.store import Range
from mailwarden.model.scope import Scope

MAX_KEPT = 256
MAX_READS = 4  # at a time, each for other figures

Figures = TypeVar("Figures")


class Recent(Generic[Figures]):
    """Figures that were read less than `seconds` ago."""

    def __init__(self, seconds: float, read: Callable[[Scope, Range], Awaitable[Figures]]) -> None:
        self._seconds = seconds
        self._read = read
        self._kept: dict[tuple[Scope, Range], tuple[float, Figures]] = {}
        self._locks = WeakValueDictionary[tuple[Scope, Range], asyncio.Lock]()  # a lock lives while a caller has it
        self._turns = asyncio.Semaphore(MAX_READS)

    async def get(self, scope: Scope, range_: Range) -> Figures:
        key = scope, range_
        # Concurrent readers of the same figures share one query; a query that hangs does not hold the others.
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            kept = self._kept.get(key)
            if kept is not None and time.monotonic() - kept[0] < self._seconds:
                return kept[1]
            async with self._turns:
                figures = await self._read(scope, range_)
            self._kept.pop(key, None)
            while len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (time.monotonic(), figures)
            return figures
