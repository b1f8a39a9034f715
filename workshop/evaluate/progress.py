"""Runs long work in parallel, and shows its progress."""

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
    """Process so many items at once, and return the results in the order of the items."""
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
    """Shows the progress: on one line of a terminal, otherwise with few lines."""

    def __init__(self, total: int, what: str = "messages") -> None:
        self._total = total
        self._what = what
        self._began = time.monotonic()
        self._said = 0.0
        self._done = 0

    def step(self) -> None:
        """Count one more item."""
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
