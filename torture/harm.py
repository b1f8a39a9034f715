"""What bombs do to others: a harmless message's p99 alone and while bombs come, in phases that take turns."""

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

from rig.caller import Caller, caller_context
from rig.product import Product
from rig.samples import plain_message
from torture.bombs import Bomb, bombs
from torture.messages import caller_of
from torture.results import show_progress

PHASES = 6
MESSAGES_A_PHASE = 120
SMALL = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Harm:
    """Milliseconds of a harmless message, alone and beside bombs."""

    alone: tuple[float, ...]
    beside: tuple[float, ...]
    bombs: int

    @property
    def ratio(self) -> float:
        return p99(self.beside) / p99(self.alone)

    def __str__(self) -> str:
        return (
            f"harmless message: p50 {statistics.median(self.alone):.0f} ms, p99 {p99(self.alone):.0f} ms alone; "
            f"p50 {statistics.median(self.beside):.0f} ms, p99 {p99(self.beside):.0f} ms while {self.bombs} bombs "
            f"came one after the other; p99 ratio {self.ratio:.2f}"
        )


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


async def measure_harm(product: Product, *, phases: int = PHASES, messages: int = MESSAGES_A_PHASE) -> Harm:
    """Send harmless messages in phases with and without bombs, which come from a process of their own."""
    spawn = multiprocessing.get_context("spawn")
    exploding, over = spawn.Event(), spawn.Event()
    count = spawn.Value("i", 0)
    arguments = (product.abby.port, product.ca, product.token, exploding, over, count)
    bomber = spawn.Process(target=keep_bombing, args=arguments, daemon=True)
    bomber.start()
    alone: list[float] = []
    beside: list[float] = []
    try:
        async with caller_of(product) as caller:
            await _latencies(caller, messages // 4)  # warm up
            for phase in range(phases):
                show_progress(f"harmless message, phase {phase + 1}/{phases}")
                alone += await _latencies(caller, messages)
                before = count.value
                exploding.set()
                while count.value == before:
                    await asyncio.sleep(0.01)
                beside += await _latencies(caller, messages)
                exploding.clear()
                await asyncio.sleep(1.0)  # The last bomb ends before the next phase begins.
    finally:
        over.set()
        exploding.set()
        bomber.join(30.0)
    return Harm(tuple(alone), tuple(beside), count.value)


async def _latencies(caller: Caller, count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        answer = await caller.submit(plain_message())
        assert (answer.status, answer.record["verdict"]) == (200, "clean"), answer
        found.append((time.perf_counter() - began) * 1000)
    return found


def tripping_bombs() -> list[tuple[Bomb, bytes]]:
    """Return the bombs that a harmless message suffers from: made to break parsers, and small enough to come often."""
    made = [(bomb, bomb.make()) for bomb in bombs() if bomb.trips]
    return [(bomb, message) for bomb, message in made if len(message) <= SMALL]


def keep_bombing(port: int, ca: Path, token: str, exploding: Event, over: Event, count: object) -> None:
    """Submit one bomb after the other whenever it is time for them."""
    asyncio.run(_keep_bombing(port, ca, token, exploding, over, count))


async def _keep_bombing(port: int, ca: Path, token: str, exploding: Event, over: Event, count: object) -> None:
    every = tripping_bombs()
    async with Caller(port, caller_context(ca), token) as caller:
        while True:
            for _, message in every:
                exploding.wait()
                if over.is_set():
                    return
                await caller.submit(message)
                count.value += 1  # type: ignore[attr-defined]
