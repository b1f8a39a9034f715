"""guards, their workers and abby killed with requests in them: every caller is answered, and no row is doubled."""

import asyncio
import os
import signal
import time

import pytest

from tests.faults.conftest import STEADY, Note, Start
from tests.faults.guard_status import rows, wait_until_empty, wait_until_filled
from tests.faults.invariants import RECOVERY_SECONDS, check_answers, check_deliveries, check_nothing_spooled
from tests.faults.load import PATIENCE, explain, kill, start, submitting, summary
from workshop.rig.engines import Engines
from workshop.rig.watcher import tree

pytestmark = pytest.mark.slow


@pytest.mark.contract("6 another guard")
async def test_a_guard_killed_with_requests_in_it_costs_no_answer_and_doubles_no_row(
    start_own_product: Start, note: Note, restored_engines: Engines, database_url: str
) -> None:
    product = start_own_product(STEADY, STEADY)
    first, second = product.guards
    async with submitting(product) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        # A pause shorter than the engine's deadline holds requests in both guards without failing any.
        await asyncio.to_thread(restored_engines.clamd.pause)
        await asyncio.sleep(0.3)
        held = await wait_until_filled(product.guards)
        await kill(first)
        gone = time.monotonic()
        await asyncio.to_thread(restored_engines.clamd.resume)
        await asyncio.sleep(1.0)
        await start(first)
        await wait_until_filled([first])  # abby looks at its guards once a second, and then shares the load again.
        await asyncio.sleep(1.0)
    check_answers(load, refusals=())
    assert all(outcome.status == 200 and outcome.verdict != "unknown" for outcome in load.outcomes), summary(
        load.outcomes
    )
    later = [outcome for outcome in load.outcomes if outcome.ended >= gone]
    moved = [outcome for outcome in later if outcome.began < gone]
    assert len(moved) >= held[0] > 0
    reported = await explain(product, [outcome.ggrid for outcome in (*moved, *later[-50:])])
    assert {reported[outcome.ggrid]["guard"] for outcome in moved} == {second.name}
    assert {reported[outcome.ggrid]["guard"] for outcome in later[-50:]} == {first.name, second.name}
    kept = rows(restored_engines, database_url)
    assert set(kept.values()) == {1}
    assert {outcome.ggrid for outcome in later} <= set(kept) <= {outcome.ggrid for outcome in load.outcomes}
    note(f"guard killed with {held} requests in the two: {len(load.outcomes)} answered, all 200, one row each")
    await check_deliveries(product, load.outcomes[-200:])
    await check_nothing_spooled(product)


@pytest.mark.contract("6 worker")
async def test_killed_workers_cost_at_most_the_messages_they_held(start_own_product: Start, note: Note) -> None:
    product = start_own_product()
    guard = product.guards[0]
    killed = 0
    async with submitting(product) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        for _ in range(4):
            for pid in tree(guard.pid):
                if pid != guard.pid:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            await asyncio.sleep(0.5)
        moment = time.monotonic()
        recovery = await load.wait_for(lambda outcome: outcome.delivered, moment, RECOVERY_SECONDS)
        await asyncio.sleep(0.5)
    check_answers(load)
    note(f"{killed} workers killed: delivering again after {recovery:.2f} s; {summary(load.outcomes)}")
    assert killed >= 4
    assert all(outcome.status == 200 for outcome in load.outcomes), summary(load.outcomes)
    # clamd sees the raw bytes, whatever became of the worker.
    assert all(outcome.verdict == "malware" for outcome in load.outcomes if outcome.kind == "malware")
    assert await check_deliveries(product, load.outcomes) > 0
    await check_nothing_spooled(product)


@pytest.mark.contract("6 caller keeps the message")
async def test_callers_that_try_again_lose_nothing_when_abby_is_killed(
    start_own_product: Start, note: Note, restored_engines: Engines, database_url: str
) -> None:
    product = start_own_product()
    async with submitting(product, retry=True) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        gone = time.monotonic()
        await kill(product.abby)
        await asyncio.sleep(0.5)
        await start(product.abby)
        ready = time.monotonic()
        recovery = await load.wait_for(lambda outcome: outcome.delivered, ready, RECOVERY_SECONDS)
        await asyncio.sleep(0.5)
    lost = [outcome for outcome in load.outcomes if outcome.answer is None]
    assert lost
    assert all(outcome.ended >= gone and outcome.began <= ready for outcome in lost)
    check_answers(load, lost=len(lost))
    assert all(outcome.status in {0, 200} for outcome in load.outcomes), summary(load.outcomes)
    await check_deliveries(product, load.outcomes)
    assert set(rows(restored_engines, database_url).values()) == {1}
    await wait_until_empty(product.guards[0])
    note(f"abby killed: {len(lost)} attempts had to be made again, delivering {recovery:.2f} s after its return")
    await check_nothing_spooled(product)
