"""Long work: much of it side by side, and how far it has come."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

AT_ONCE = 8
_PROGRESS_SECONDS = 1.0

Item = TypeVar("Item")
Result = TypeVar("Result")


async def side_by_side(
    items: Iterable[Item], work: Callable[[Item], Awaitable[Result]], done: Callable[[], None]
) -> list[Result]:
    """Do the work for so many items at once, and return what came of each in their order."""
    waiting = enumerate(items)
    results: dict[int, Result] = {}

    async def go_on() -> None:
        for position, item in waiting:
            results[position] = await work(item)
            done()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(go_on())
    return [results[position] for position in sorted(results)]


class Meter:
    """Shows how far it has come: over and over on one line at a terminal, seldom elsewhere."""

    def __init__(self, total: int, what: str = "messages") -> None:
        self._total = total
        self._what = what
        self._began = time.monotonic()
        self._said = 0.0
        self._done = 0

    def step(self) -> None:
        """One more is done."""
        self._done += 1
        done = self._done
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if done < self._total and now - self._said < (_PROGRESS_SECONDS if terminal else 15 * _PROGRESS_SECONDS):
            return
        self._said = now
        rate = done / max(now - self._began, 0.001)
        left = (self._total - done) / max(rate, 0.1)
        text = f"{done:,} of {self._total:,} {self._what}, {rate:.0f}/s, {left:.0f} s left"
        print(f"\r{text}\x1b[K" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)
        if terminal and done >= self._total:
            print(file=sys.stderr)
