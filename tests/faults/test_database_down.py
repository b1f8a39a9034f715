"""PostgreSQL killed under load: scans go on, and history is written when it is back, one row a guard request."""

import asyncio
import time

import pytest

from rig.engines import Engines
from tests.faults.conftest import Note, Start
from tests.faults.guard_status import figure, rows
from tests.faults.invariants import RECOVERY_SECONDS, check_answers, check_deliveries, check_nothing_spooled
from tests.faults.load import PATIENCE, explain, kill, start, submitting, summary, wait_for_colour

pytestmark = pytest.mark.slow


@pytest.mark.contract("6 database down")
async def test_scans_continue_without_the_database_and_history_is_written_later(
    start_own_product: Start, note: Note, restored_engines: Engines, database_url: str
) -> None:
    product = start_own_product()
    postgresql = restored_engines.postgresql
    async with submitting(product) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        await wait_for_colour(product, "GREEN")
        await kill(postgresql)
        gone = time.monotonic()
        await wait_for_colour(product, "YELLOW")
        await load.wait_for_every_kind(gone)
        back = time.monotonic()
        await start(postgresql)
        ready = time.monotonic()
        await asyncio.sleep(1.0)
    check_answers(load, refusals=())
    outage = [outcome for outcome in load.outcomes if outcome.began >= gone and outcome.ended <= back]
    assert outage
    assert all(outcome.status == 200 and outcome.verdict != "unknown" for outcome in load.outcomes), summary(outage)
    answered = [outcome.ggrid for outcome in load.outcomes]
    await explain(product, [outcome.ggrid for outcome in outage[-50:]], RECOVERY_SECONDS)
    written = time.monotonic() - ready
    await check_deliveries(product, outage[:100])
    assert len(set(answered)) == len(answered)
    while set(kept := rows(restored_engines, database_url)) != set(answered):
        lost = set(answered) - set(kept)
        assert time.monotonic() < ready + PATIENCE, f"history has not {len(lost)} of {len(answered)}"
        await asyncio.sleep(0.2)
    assert set(kept.values()) == {1}
    note(f"PostgreSQL killed: {len(outage)} of {len(answered)} scanned without it, in history {written:.2f} s after")
    assert await figure(product.guards[0], "mailwarden_history_dropped_total") == 0
    await check_nothing_spooled(product)
