"""The resolver stopped, failing, slow or without any name, under load: no forged message is delivered meanwhile."""

import asyncio
import time
from collections.abc import Iterator
from typing import Literal

import pytest

from tests.faults.conftest import Note, Start
from tests.faults.invariants import RECOVERY_SECONDS, check_deliveries
from tests.faults.load import FORGED, PATIENCE, PLAIN, Load, kill, start, submitting, summary, wait_for_colour
from workshop.rig.engines import Engines
from workshop.rig.failing_resolver import FailingResolver, ResolverState
from workshop.rig.rspamd import Rspamd
from workshop.rig.samples import plain_message

pytestmark = pytest.mark.slow

OUTAGE_SECONDS = 5.0
TRIPS = {("unknown", "undecided"), ("spoof", "quarantine")}


def in_long(*states: str) -> list[pytest.ParameterSet]:
    """Return these states as parameters that only `make check-long` tries."""
    return [pytest.param(state, marks=pytest.mark.long) for state in states]


@pytest.fixture(scope="module")
def failing_resolver(engines: Engines) -> Iterator[FailingResolver]:
    with FailingResolver(engines.dns.address) as resolver:
        yield resolver


@pytest.fixture(scope="module")
def rspamd(engines: Engines, failing_resolver: FailingResolver) -> Iterator[Rspamd]:
    """An Rspamd that asks the failing_resolver resolver."""
    server = Rspamd(
        engines.folder / "rspamd-failing_resolver", redis=engines.redis.address, dns=failing_resolver.address
    )
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
@pytest.mark.parametrize("state", ["silent", *in_long("stopped", "servfail", "slow", "nxdomain")])
async def test_without_a_working_resolver_nothing_is_delivered_and_status_is_red(
    start_own_product: Start,
    note: Note,
    restored_engines: Engines,
    rspamd: Rspamd,
    failing_resolver: FailingResolver,
    state: ResolverState | Literal["stopped"],
) -> None:
    product = start_own_product(guard_of(rspamd, failing_resolver.address))
    async with submitting(product, kinds=(PLAIN, FORGED)) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        await wait_for_colour(product, "GREEN")
        gone = time.monotonic()
        if state == "stopped":
            await kill(restored_engines.dns)
        else:
            failing_resolver.state = state
        try:
            await wait_for_colour(product, "RED")
            red = time.monotonic()
            await asyncio.sleep(OUTAGE_SECONDS)
        finally:
            failing_resolver.state = "steady"
        back = time.monotonic()
        if not restored_engines.dns.running:
            await start(restored_engines.dns)
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
        f"resolver {state}: RED after {red - gone:.2f} s, delivering {recovery:.2f} s after it works;"
        f" 0 of {forged} forged delivered; {summary(load.outcomes)}"
    )
    assert await check_deliveries(product, load.outcomes) > 0


@pytest.mark.contract("8 dns")
@pytest.mark.parametrize("state", ["servfail", *in_long("silent", "nxdomain")])
async def test_where_rspamd_alone_has_no_resolver_no_forged_message_is_delivered(
    start_own_product: Start,
    note: Note,
    restored_engines: Engines,
    rspamd: Rspamd,
    failing_resolver: FailingResolver,
    state: ResolverState,
) -> None:
    product = start_own_product(guard_of(rspamd, restored_engines.dns.address))
    async with submitting(product, kinds=(PLAIN, FORGED)) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        try:
            failing_resolver.state = state
            gone = time.monotonic()
            await load.wait_for(lambda outcome: outcome.kind == FORGED, gone, PATIENCE)
            await asyncio.sleep(OUTAGE_SECONDS)
        finally:
            failing_resolver.state = "steady"
        back = time.monotonic()
        recovery = await load.wait_for(lambda outcome: outcome.delivered, back, RECOVERY_SECONDS)
    check_forged(load)
    assert any(outcome.decision == "undecided" for outcome in load.since(gone) if outcome.kind == FORGED)
    forged = sum(outcome.kind == FORGED for outcome in load.outcomes)
    note(f"Rspamd's resolver {state}: 0 of {forged} forged delivered; good mail again after {recovery:.2f} s")


@pytest.mark.contract("8 dns")
def test_a_lost_packet_does_not_hide_the_records_of_a_sender(rspamd: Rspamd, failing_resolver: FailingResolver) -> None:
    envelope = {"From": "alice@quarantine.example", "IP": "192.0.2.20", "Helo": "mail.quarantine.example"}
    failing_resolver.state = "lossy"
    try:
        answer = rspamd.scan(plain_message("alice@quarantine.example"), envelope)
    finally:
        failing_resolver.state = "steady"
    symbols = answer["symbols"]
    assert isinstance(symbols, dict)
    assert symbols.keys().isdisjoint({"DMARC_DNSFAIL", "R_SPF_DNSFAIL"}), sorted(symbols)
    assert "R_SPF_ALLOW" in symbols, sorted(symbols)
