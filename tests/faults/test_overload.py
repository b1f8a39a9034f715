"""Three times as many messages as guard can take: it goes on at its full pace and refuses the rest at once."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.faults.conftest import Note, Start
from tests.faults.invariants import check_nothing_spooled
from tests.faults.load import caller_of
from workshop.bench.messages import make_message
from workshop.rig.caller import Answer, Caller
from workshop.rig.product import Product

pytestmark = pytest.mark.slow

PLACES = 8
CALLERS = 64
SIZE = 20_000
SECONDS = 2.0
FILLED = 0.4
ROUNDS = 3
# Where those who wait hold a place, goodput falls to a tenth. Here the load itself takes a good part of the cores
# that the engines need, so the bound only tells a collapse; the note has the figure.
GOODPUT = 0.6


@dataclass(slots=True)
class Round:
    """What a round brought: every answer with its time; the first moments, while the places fill, do not count."""

    began: float
    answers: list[tuple[float, Answer]]

    def add(self, answer: Answer) -> None:
        self.answers.append((time.monotonic() - self.began, answer))

    @property
    def goodput(self) -> float:
        good = [moment for moment, answer in self.answers if answer.status == 200 and FILLED < moment <= SECONDS]
        return len(good) / (SECONDS - FILLED)

    @property
    def refusals(self) -> list[Answer]:
        return [answer for _, answer in self.answers if answer.status != 200]


async def fill(callers: Sequence[Caller], message: bytes) -> Round:
    """Keep exactly as many guard requests in the air as guard has places."""
    outcome = Round(time.monotonic(), [])

    async def submit_on(caller: Caller) -> None:
        while time.monotonic() - outcome.began < SECONDS:
            outcome.add(await caller.submit(message))

    await asyncio.gather(*(submit_on(caller) for caller in callers[:PLACES]))
    return outcome


async def flood(callers: Sequence[Caller], message: bytes, rate: float) -> Round:
    """Offer messages at a fixed rate, whatever is answered."""
    outcome = Round(time.monotonic(), [])
    idle = list(callers)
    calls: set[asyncio.Task[None]] = set()

    async def submit_one(caller: Caller) -> None:
        outcome.add(await caller.submit(message))
        idle.append(caller)

    for number in range(int(SECONDS * rate)):
        await asyncio.sleep(max(0.0, outcome.began + number / rate - time.monotonic()))
        if idle:  # Otherwise all callers wait for an answer, and the next message would only wait with them.
            call = asyncio.create_task(submit_one(idle.pop()))
            calls.add(call)
            call.add_done_callback(calls.discard)
    await asyncio.gather(*calls)
    return outcome


async def compare(product: Product, message: bytes) -> tuple[float, float, float, list[Answer]]:
    """Return capacity, what was offered and the goodput under it, a second each, and the refusals."""
    callers = [caller_of(product) for _ in range(CALLERS)]
    try:
        full = await fill(callers, message)
        assert not full.refusals
        flooded = await flood(callers, message, 3 * full.goodput)
        return full.goodput, len(flooded.answers) / SECONDS, flooded.goodput, flooded.refusals
    finally:
        for caller in callers:
            caller.close()


@pytest.mark.contract("3 admission")
@pytest.mark.flaky(reruns=1)  # a pace that is measured: a busy machine gets a second measurement
@pytest.mark.parametrize(
    "threshold",
    [pytest.param(PLACES, id="a plain step"), pytest.param(PLACES // 2, id="with throttling", marks=pytest.mark.long)],
)
async def test_three_times_the_load_leaves_the_goodput_where_it_was(
    start_own_product: Start, note: Note, threshold: int
) -> None:
    limits = {
        "maxGuardRequestsInProcessing": PLACES,
        "guardRequestThrottleThreshold": threshold,
        "maxThrottleDelay": 200,
        "log": {"level": "warning"},
    }
    product = start_own_product(limits, abby={"log": {"level": "warning"}})
    message = make_message(1, SIZE)
    ratios: list[float] = []
    for _ in range(ROUNDS):
        capacity, offered, goodput, refusals = await compare(product, message)
        ratios.append(goodput / capacity)
        note(
            f"overload, threshold {threshold} of {PLACES}: capacity {capacity:.0f}/s, offered {offered:.0f}/s, "
            f"goodput {goodput:.0f}/s, ratio {ratios[-1]:.2f}, {len(refusals)} refused"
        )
        assert offered > 2 * capacity
        assert refusals
        for refusal in refusals:
            assert (refusal.status, refusal.error) == (503, "overloaded"), refusal
            assert 1 <= int(refusal.headers["retry-after"]) <= 5, refusal
    assert statistics.median(ratios) >= GOODPUT, ratios
    await check_nothing_spooled(product)
