"""Bounds for calls in progress: of one kind, and for calls that read much also of one credential."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from mailwarden.access.callers import Caller
from mailwarden.errors import Overloaded, RateLimited

WAIT_SECONDS = 20.0


class CallCounter:
    """Counts the calls of one kind in progress in this process, and rejects those beyond the maximum."""

    def __init__(self, maximum: int, sentence: str) -> None:
        self.maximum = maximum
        self.in_progress = 0
        self._sentence = sentence

    @contextmanager
    def call(self) -> Iterator[None]:
        if self.in_progress >= self.maximum:
            raise Overloaded(self._sentence)
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1


class Turns:
    """Admits calls of one kind in this process.

    A credential has `each` calls at once, and all together have `total`. `running` reads run at once; others wait in
    the order of arrival.
    """

    def __init__(self, what: str, *, each: int, total: int, running: int) -> None:
        self._what = what
        self._each = each
        self._calls = CallCounter(total, f"Too many {what} at once; try again.")
        self._calls_of: Counter[str] = Counter()
        self._places = asyncio.Semaphore(running)

    @contextmanager
    def call(self, caller: Caller) -> Iterator[None]:
        if self._calls_of[caller.name] >= self._each:
            sentence = f"This credential has {self._each} {self._what} running; wait for one of them."
            raise RateLimited(sentence, retry_after=1)
        with self._calls.call():
            self._calls_of[caller.name] += 1
            try:
                yield
            finally:
                self._calls_of[caller.name] -= 1
                self._calls_of += Counter()  # forget callers without a call

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
