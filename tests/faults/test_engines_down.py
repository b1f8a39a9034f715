"""Rspamd or clamd killed or stopped in its tracks under load: nothing unfinished is delivered, and all comes back."""

import asyncio
import time

import pytest

from tests.faults.conftest import ENGINE_MILLISECONDS, GUARD, Note, Start
from tests.faults.invariants import RECOVERY_SECONDS, check_answers, check_deliveries, check_nothing_spooled
from tests.faults.load import MALWARE, PATIENCE, PLAIN, SPAM, Load, kill, start, submitting, summary, wait_for_colour
from workshop.rig.engines import Engines
from workshop.rig.process import ServerProcess

pytestmark = pytest.mark.slow


def engine_named(engines: Engines, name: str) -> ServerProcess:
    return {"rspamd": engines.rspamd, "clamd": engines.clamd}[name]


def check_outage(load: Load, name: str, began: float, ended: float) -> None:
    """What was asked and answered without the engine: undecided, or convicted by the other one."""
    outage = [outcome for outcome in load.outcomes if outcome.began >= began and outcome.ended <= ended]
    assert {outcome.kind for outcome in outage} == {PLAIN, MALWARE, SPAM}, summary(outage)
    for outcome in outage:
        if outcome.kind == {"rspamd": MALWARE, "clamd": SPAM}[name]:
            convicted = {MALWARE: "malware", SPAM: "spam"}[outcome.kind]
            assert (outcome.verdict, outcome.decision) == (convicted, "quarantine"), str(outcome)
            assert outcome.answer is not None
            assert "analysis.incomplete" in str(outcome.answer.record["tags"]), str(outcome)
        else:
            assert not outcome.delivered, str(outcome)
        if outcome.kind == PLAIN:
            assert (outcome.verdict, outcome.decision) == ("unknown", "undecided"), str(outcome)
        assert outcome.ended - outcome.began < ENGINE_MILLISECONDS / 1000 + 10.0, str(outcome)


@pytest.mark.contract("6 engine down")
@pytest.mark.parametrize("name", ["rspamd", pytest.param("clamd", marks=pytest.mark.long)])
async def test_a_killed_engine_stops_delivery_until_it_is_back(
    start_own_product: Start, note: Note, restored_engines: Engines, name: str
) -> None:
    product = start_own_product(GUARD)
    engine = engine_named(restored_engines, name)
    async with submitting(product) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        await wait_for_colour(product, "GREEN")
        await kill(engine)
        gone = time.monotonic()
        await wait_for_colour(product, "RED")
        await load.wait_for_every_kind(gone)
        back = time.monotonic()
        await start(engine)
        ready = time.monotonic()
        recovery = await load.wait_for(lambda outcome: outcome.delivered, ready, RECOVERY_SECONDS)
        await asyncio.sleep(0.5)
    note(f"{name} killed: delivering again {recovery:.2f} s after it answers; {summary(load.outcomes)}")
    check_answers(load)
    check_outage(load, name, gone, back)
    assert await check_deliveries(product, load.outcomes) > 0
    await check_nothing_spooled(product)


@pytest.mark.contract("6 engine down")
@pytest.mark.parametrize("name", [pytest.param("rspamd", marks=pytest.mark.long), "clamd"])
async def test_a_paused_engine_costs_its_deadline_and_stops_delivery(
    start_own_product: Start, note: Note, restored_engines: Engines, name: str
) -> None:
    product = start_own_product(GUARD)
    engine = engine_named(restored_engines, name)
    async with submitting(product) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        await asyncio.to_thread(engine.pause)
        gone = time.monotonic()
        await load.wait_for_every_kind(gone)
        back = time.monotonic()
        await asyncio.to_thread(engine.resume)
        recovery = await load.wait_for(lambda outcome: outcome.delivered, back, RECOVERY_SECONDS)
        await asyncio.sleep(0.5)
    note(f"{name} paused: delivering again {recovery:.2f} s after it goes on; {summary(load.outcomes)}")
    check_answers(load)
    check_outage(load, name, gone, back)
    assert await check_deliveries(product, load.outcomes) > 0
    await check_nothing_spooled(product)


@pytest.mark.contract("6 tempfail")
async def test_under_tempfail_a_killed_engine_means_503_until_it_returns(
    start_own_product: Start, note: Note, restored_engines: Engines
) -> None:
    product = start_own_product({**GUARD, "onEngineFailure": "tempfail"})
    async with submitting(product) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        await kill(restored_engines.clamd)
        gone = time.monotonic()
        await load.wait_for_every_kind(gone)
        back = time.monotonic()
        await start(restored_engines.clamd)
        recovery = await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), RECOVERY_SECONDS)
    note(f"tempfail: delivering again {recovery:.2f} s after clamd answers; {summary(load.outcomes)}")
    check_answers(load)
    outage = [outcome for outcome in load.outcomes if outcome.began >= gone and outcome.ended <= back]
    for outcome in outage:
        if outcome.kind in (SPAM, MALWARE):  # A conviction waits for nobody: our own analyzers know the test file too.
            assert outcome.verdict == outcome.kind, str(outcome)
        else:
            assert outcome.answer is not None
            assert (outcome.status, outcome.answer.error) == (503, "engine_unavailable"), str(outcome)
    assert {outcome.kind for outcome in outage} == {PLAIN, MALWARE, SPAM}
    assert await check_deliveries(product, load.outcomes) > 0
    await check_nothing_spooled(product)
