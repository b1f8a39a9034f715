"""The resolver stopped, failing, slow or without any name, under load: no forged message is delivered meanwhile."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from rig.engines import Engines
from rig.rspamd import Rspamd
from rig.unsteady_dns import Mood, UnsteadyDns
from tests.faults.conftest import Note, Start
from tests.faults.load import FORGED, PATIENCE, PLAIN, Load, kill, start, submitting, summary, wait_for_colour
from tests.faults.promises import RECOVERY_SECONDS, check_deliveries

pytestmark = pytest.mark.slow

OUTAGE_SECONDS = 5.0
TRIPS = {("unknown", "undecided"), ("spoof", "quarantine")}


@pytest.fixture(scope="module")
def unsteady(engines: Engines) -> Iterator[UnsteadyDns]:
    with UnsteadyDns(engines.dns.address) as resolver:
        yield resolver


@pytest.fixture(scope="module")
def rspamd(engines: Engines, unsteady: UnsteadyDns) -> Iterator[Rspamd]:
    """An Rspamd that asks the unsteady resolver."""
    server = Rspamd(engines.folder / "rspamd-unsteady", redis=engines.redis.address, dns=unsteady.address)
    server.start()
    yield server
    server.stop()


def guard_of(rspamd: Rspamd, resolver: str) -> dict[str, object]:
    return {
        "engines": {
            "rspamd": {"address": rspamd.address, "timeout": 20_000},
            "clamav": {"timeout": 20_000},
            "dns": {"servers": [resolver], "timeout": 1_000},
        },
        "maxGuardRequestsInProcessing": 32,
        "guardRequestThrottleThreshold": 32,
    }


def check_forged(load: Load) -> None:
    forged = [outcome for outcome in load.outcomes if outcome.kind == FORGED]
    assert forged
    for outcome in forged:
        assert (outcome.verdict, outcome.decision) in TRIPS, str(outcome)


@pytest.mark.contract("8 dns")
@pytest.mark.parametrize("mood", [None, "silent", "servfail", "slow", "nxdomain"], ids=lambda mood: mood or "stopped")
async def test_without_a_working_resolver_nothing_is_delivered_and_status_is_red(
    start_product_of: Start,
    note: Note,
    whole_engines: Engines,
    rspamd: Rspamd,
    unsteady: UnsteadyDns,
    mood: Mood | None,
) -> None:
    product = start_product_of(guard_of(rspamd, unsteady.address))
    async with submitting(product, kinds=(PLAIN, FORGED)) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        await wait_for_colour(product, "GREEN")
        gone = time.monotonic()
        if mood is None:
            await kill(whole_engines.dns)
        else:
            unsteady.mood = mood
        try:
            await wait_for_colour(product, "RED")
            red = time.monotonic()
            await asyncio.sleep(OUTAGE_SECONDS)
        finally:
            unsteady.mood = "steady"
        back = time.monotonic()
        if not whole_engines.dns.running:
            await start(whole_engines.dns)
        ready = time.monotonic()
        recovery = await load.wait_for(lambda outcome: outcome.delivered, ready, RECOVERY_SECONDS)
        await wait_for_colour(product, "GREEN")
        await load.wait_for(lambda outcome: outcome.verdict == "spoof", ready, RECOVERY_SECONDS + PATIENCE)
    check_forged(load)
    outage = [outcome for outcome in load.outcomes if outcome.began >= red and outcome.ended <= back]
    assert {outcome.kind for outcome in outage} <= {PLAIN, FORGED}
    assert not [str(outcome) for outcome in outage if outcome.delivered]
    for outcome in outage:
        if outcome.kind == PLAIN and outcome.answer is not None:
            assert "analysis.incomplete" in str(outcome.answer.record["tags"]), str(outcome)
    forged = sum(outcome.kind == FORGED for outcome in load.outcomes)
    note(
        f"resolver {mood or 'stopped'}: RED after {red - gone:.2f} s, delivering again {recovery:.2f} s after it works;"
        f" 0 of {forged} forged delivered; {summary(load.outcomes)}"
    )
    assert await check_deliveries(product, load.outcomes) > 0


@pytest.mark.contract("8 dns")
@pytest.mark.parametrize("mood", ["silent", "servfail", "nxdomain"])
async def test_where_rspamd_alone_has_no_resolver_no_forged_message_is_delivered(
    start_product_of: Start, note: Note, whole_engines: Engines, rspamd: Rspamd, unsteady: UnsteadyDns, mood: Mood
) -> None:
    product = start_product_of(guard_of(rspamd, whole_engines.dns.address))
    async with submitting(product, kinds=(PLAIN, FORGED)) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        try:
            unsteady.mood = mood
            gone = time.monotonic()
            await load.wait_for(lambda outcome: outcome.kind == FORGED, gone, PATIENCE)
            await asyncio.sleep(OUTAGE_SECONDS)
        finally:
            unsteady.mood = "steady"
        back = time.monotonic()
        recovery = await load.wait_for(lambda outcome: outcome.delivered, back, RECOVERY_SECONDS)
    check_forged(load)
    assert any(outcome.decision == "undecided" for outcome in load.since(gone) if outcome.kind == FORGED)
    forged = sum(outcome.kind == FORGED for outcome in load.outcomes)
    note(f"Rspamd's resolver {mood}: 0 of {forged} forged delivered; good mail again after {recovery:.2f} s")
