"""Keeps a number of requests in flight, and records the duration of each."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Ask = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Load:
    """The result of one round."""

    seconds: float
    latencies: tuple[float, ...]

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    @property
    def p50(self) -> float:
        return statistics.median(self.latencies) * 1000

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.latencies, n=100)[98] * 1000


async def run_load(askers: Sequence[Ask], messages: Sequence[bytes], count: int) -> Load:
    """Make `count` requests; each client has one in flight at any time."""
    latencies: list[float] = []
    turns = iter(range(count))

    async def keep_asking(ask: Ask) -> None:
        for turn in turns:
            started = time.perf_counter()
            await ask(messages[turn % len(messages)])
            latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(keep_asking(ask) for ask in askers))
    return Load(time.perf_counter() - started, tuple(latencies))
