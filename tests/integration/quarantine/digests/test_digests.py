"""Digests are sent once a day, to those whom they are for, of what is theirs; trouble with one is no other's."""

import asyncio
import re
from datetime import timedelta

import pytest

from mailwarden.errors import TenantForbidden
from mailwarden.model.scope import Scope
from mailwarden.quarantine.digest import DigestJob
from mailwarden.quarantine.digest_mail import TRIES
from mailwarden.smtp.client import NextHop
from mailwarden.telemetry.metrics import Metrics
from tests.integration.quarantine.digests.digest_setup import ALL, ANN, BOB, MORNING, STRANGER, DigestSetup, DigestSink


def counted(metrics: Metrics) -> dict[str, int]:
    """Return how many digests became what."""
    found = re.findall(r'mailwarden_quarantine_digests_total{outcome="(\w+)"} (\d+)', metrics.page().decode())
    return {outcome: int(count) for outcome, count in found}


async def test_a_recipient_gets_each_new_message_in_one_digest(setup: DigestSetup, digest_sink: DigestSink):
    await setup.keep(subject="First")
    guard = setup.guard()
    assert await guard.look() == 1
    ((sender, _, _),) = digest_sink.taken
    assert sender == "<>", "nothing bounces back to us"
    assert "First" in digest_sink.take_texts()[ANN]
    await setup.keep(subject="Second")
    assert [await each.look() for each in (guard, setup.guard())] == [0, 0], "not twice on one day"
    setup.now += timedelta(days=1)
    assert await guard.look() == 1
    (text,) = digest_sink.take_texts().values()
    assert "Second" in text
    assert "First" not in text
    setup.now += timedelta(days=1)
    assert await guard.look() == 0


async def test_no_digest_before_the_hour_or_about_later_messages(setup: DigestSetup):
    await setup.keep()
    setup.now = MORNING.replace(hour=6, minute=59)
    assert await setup.guard().look() == 0
    setup.now = MORNING - timedelta(days=2)  # the message came after that morning, whenever the test runs
    assert await setup.guard().look() == 0
    setup.now = MORNING
    assert await setup.guard().look() == 1


async def test_a_tenant_without_digests_gets_none(setup: DigestSetup, digest_sink: DigestSink):
    await setup.keep()
    await setup.want(setup.north, wanted=False)
    assert await setup.guard().look() == 0
    await setup.want(setup.north)
    assert await setup.guard().look() == 1


async def test_messages_no_longer_held_are_not_listed(setup: DigestSetup, digest_sink: DigestSink):
    gone, stays = await setup.keep(ANN, BOB, subject="Gone"), await setup.keep(subject="Stays")
    await setup.store.delete(ALL, gone, [ANN], STRANGER)
    await setup.guard().look()
    texts = digest_sink.take_texts()
    assert "Gone" not in texts[ANN]
    assert "Stays" in texts[ANN]
    assert "Gone" in texts[BOB]
    assert await setup.states(stays) == ["held"]


async def test_two_guards_at_once_send_each_digest_once(setup: DigestSetup, digest_sink: DigestSink):
    names = [f"p{number}@north.example" for number in range(40)]
    for each in names:
        await setup.keep(each)
    other = NextHop(setup.hop._address, 5.0, "guard-2.example")
    sent = await asyncio.gather(setup.guard().look(), setup.guard(other).look())
    other.close()
    assert sum(sent) == 40
    assert all(sent), "and both do their part"
    assert sorted(digest_sink.take_texts()) == sorted(names)


async def test_a_rejected_recipient_stops_no_other_and_is_retried_the_next_day(
    setup: DigestSetup, digest_sink: DigestSink, capsys
):
    for each in (ANN, BOB, "carol@north.example"):
        await setup.keep(each)
    digest_sink.refused = {BOB: f"550 5.1.1 <{BOB}>: No such user"}
    metrics = Metrics()
    guard = setup.guard(metrics=metrics)
    assert await guard.look() == 2
    assert BOB not in digest_sink.take_texts()
    assert counted(metrics) == {"sent": 2, "refused": 1}
    log = capsys.readouterr().out
    assert "550 5.1.1" in log
    assert "@" not in log, "no address stands in the log"
    digest_sink.refused = {}
    assert [await guard.look(), await setup.guard().look()] == [0, 0]
    setup.now += timedelta(days=1)
    assert await guard.look() == 1
    assert list(digest_sink.take_texts()) == [BOB]


async def test_digests_wait_for_the_next_hop_and_one_failure_blocks_no_other(setup, digest_sink):
    for each in (ANN, BOB):
        await setup.keep(each)
    away = NextHop(("127.0.0.1", 1), 1.0, "guard.example")
    metrics = Metrics()
    guard = setup.guard(away, metrics)
    assert await guard.look() == 0
    assert counted(metrics) == {"waits": 1}
    guard._hop = setup.hop
    assert await guard.look() == 2, "on the same day, as soon as it is back"
    digest_sink.take_texts()
    setup.now += timedelta(days=1)
    for each in (ANN, BOB):
        await setup.keep(each)
    guard._hop = away
    assert [await guard.look() for _ in range(TRIES)] == [0] * TRIES
    guard._hop = setup.hop
    assert await guard.look() == 1, "the first was given up for the day, as silence was all that met it"
    assert counted(metrics) == {"waits": 1 + TRIES, "sent": 3, "refused": 1}
    assert list(digest_sink.take_texts()) == [BOB]


async def test_a_guard_that_dies_over_a_digest_leaves_it_for_the_day_after(setup: DigestSetup, digest_sink: DigestSink):
    await setup.keep()
    await setup.digest_store.prepare(ALL, MORNING.date(), MORNING)
    assert await setup.digest_store.take(ALL, MORNING.date()) == DigestJob(setup.north, ANN)
    assert await setup.guard().look() == 0
    setup.now += timedelta(days=1)
    assert await setup.guard().look() == 1


async def test_a_tenant_never_sees_anothers_messages_for_the_same_address(setup: DigestSetup, digest_sink: DigestSink):
    mine = await setup.keep(ANN, subject="Mine")
    foreign = await setup.keep(ANN, subject="Foreign", tenant=setup.south)
    both = (setup.north, setup.south, mine), (setup.south, setup.north, foreign)
    for tenant, other, uid in both:
        found = await setup.digest_store.collect(Scope.of(tenant), DigestJob(tenant, ANN), MORNING, 10)
        assert [*found.uids, *(each.message.uid for each in found.listed)] == [uid, uid]
        with pytest.raises(TenantForbidden):
            await setup.digest_store.collect(Scope.of(other), DigestJob(tenant, ANN), MORNING, 10)
    assert await setup.guard().look() == 1, "the domain is north's alone"
    (text,) = digest_sink.take_texts().values()
    assert "Mine" in text
    assert "Foreign" not in text
    found = await setup.digest_store.collect(ALL, DigestJob(setup.south, ANN), MORNING, 10)
    assert found.uids == [foreign], "and what was told there was not told here"


async def test_an_address_outside_the_tenants_domains_gets_no_digest(setup: DigestSetup, digest_sink: DigestSink):
    (default,) = [each for each in await setup.tenants.list(ALL) if each.is_default]
    await setup.want(default.uid)
    await setup.keep("somebody@elsewhere.example", tenant=default.uid)
    assert await setup.guard().look() == 0
    assert digest_sink.taken == []


async def test_messages_beyond_the_limit_are_counted_in_the_digest(setup: DigestSetup, digest_sink: DigestSink):
    for number in range(5):
        await setup.keep(subject=f"Number {number}")
    guard = setup.guard()
    await guard.look()
    text = digest_sink.take_texts()[ANN]
    assert [f"Number {number}" in text for number in range(5)] == [False, False, True, True, True]
    assert "2 older messages are held for you as well" in text
    setup.now += timedelta(days=1)
    assert await guard.look() == 0
