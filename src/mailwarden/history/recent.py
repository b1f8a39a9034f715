"""Keeps figures of a scope and a period for some seconds: every open dashboard asks for the same ones."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from mailwarden.history.store import Range
from mailwarden.model.scope import Scope

MAX_KEPT = 256

Figures = TypeVar("Figures")


class Recent(Generic[Figures]):
    """Figures that were read less than `seconds` ago."""

    def __init__(self, seconds: float, read: Callable[[Scope, Range], Awaitable[Figures]]) -> None:
        self._seconds = seconds
        self._read = read
        self._kept: dict[tuple[Scope, Range], tuple[float, Figures]] = {}
        self._lock = asyncio.Lock()

    async def get(self, scope: Scope, range_: Range) -> Figures:
        async with self._lock:  # so that concurrent readers share one query
            kept = self._kept.get((scope, range_))
            if kept is not None and time.monotonic() - kept[0] < self._seconds:
                return kept[1]
            figures = await self._read(scope, range_)
            while len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[scope, range_] = (time.monotonic(), figures)
            return figures
