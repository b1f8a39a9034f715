"""Bounds for calls that read much: a credential cannot use all connections, nor keep others waiting without end."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from mailwarden.access.callers import Caller
from mailwarden.errors import Overloaded, RateLimited

WAIT_SECONDS = 20.0


class Turns:
    """Admits calls of one kind in this process.

    A credential has `each` calls at once, and all together have `total`. `running` reads run at once; others wait in
    the order of arrival.
    """

    def __init__(self, what: str, *, each: int, total: int, running: int) -> None:
        self._what = what
        self._each = each
        self._total = total
        self._calls: Counter[str] = Counter()
        self._places = asyncio.Semaphore(running)

    @contextmanager
    def call(self, caller: Caller) -> Iterator[None]:
        if self._calls[caller.name] >= self._each:
            sentence = f"This credential has {self._each} {self._what} running; wait for one of them."
            raise RateLimited(sentence, retry_after=1)
        if self._calls.total() >= self._total:
            raise Overloaded(f"Too many {self._what} at once; try again.")
        self._calls[caller.name] += 1
        try:
            yield
        finally:
            self._calls[caller.name] -= 1
            self._calls += Counter()  # forget callers without a call

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise Overloaded(f"Too many {self._what} are waiting; try again.") from None
        try:
            yield
        finally:
            self._places.release()
