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


async def run_paced(askers: Sequence[Ask], messages: Sequence[bytes], rate: float) -> Load:
    """Send `rate` messages a second, whether or not earlier ones are answered; a wait for a free client counts."""
    free: asyncio.Queue[Ask] = asyncio.Queue()
    for ask in askers:
        free.put_nowait(ask)
    latencies: list[float] = []
    started = time.perf_counter()

    async def send(message: bytes, due: float) -> None:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        ask = await free.get()
        try:
            await ask(message)
        finally:
            free.put_nowait(ask)
        latencies.append(time.perf_counter() - due)

    await asyncio.gather(*(send(message, started + number / rate) for number, message in enumerate(messages)))
    return Load(time.perf_counter() - started, tuple(latencies))


async def run_load(askers: Sequence[Ask], messages: Sequence[bytes]) -> Load:
    """Send each message once; each client has one request in flight at any time."""
    latencies: list[float] = []
    waiting = iter(messages)

    async def keep_asking(ask: Ask) -> None:
        for message in waiting:
            started = time.perf_counter()
            await ask(message)
            latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(keep_asking(ask) for ask in askers))
    return Load(time.perf_counter() - started, tuple(latencies))
