"""Digests are sent once a day, to those whom they are for, of what is theirs; trouble with one is no other's."""

import asyncio
import re
from datetime import timedelta

import pytest

from mailwarden.errors import TenantForbidden
from mailwarden.guard.jobs.digests import TRIES
from mailwarden.guard.smtp.next_hop import NextHop
from mailwarden.model.scope import Scope
from mailwarden.quarantine.digest import DigestJob
from mailwarden.telemetry.metrics import Metrics
from tests.integration.digests.house import ALL, ANN, BOB, MORNING, STRANGER, House, Post


def counted(metrics: Metrics) -> dict[str, int]:
    """Return how many digests became what."""
    found = re.findall(r'mailwarden_quarantine_digests_total{outcome="(\w+)"} (\d+)', metrics.page().decode())
    return {outcome: int(count) for outcome, count in found}


async def test_a_recipient_is_told_once_of_what_is_new(house: House, post: Post):
    await house.keep(subject="First")
    guard = house.guard()
    assert await guard.look() == 1
    ((sender, _, _),) = post.taken
    assert sender == "<>", "nothing bounces back to us"
    assert "First" in post.told()[ANN]
    await house.keep(subject="Second")
    assert [await each.look() for each in (guard, house.guard())] == [0, 0], "not twice on one day"
    house.now += timedelta(days=1)
    assert await guard.look() == 1
    (text,) = post.told().values()
    assert "Second" in text
    assert "First" not in text
    house.now += timedelta(days=1)
    assert await guard.look() == 0


async def test_nobody_is_told_before_the_hour_or_of_what_came_after_it(house: House):
    await house.keep()
    house.now = MORNING.replace(hour=6, minute=59)
    assert await house.guard().look() == 0
    house.now = MORNING - timedelta(days=2)  # the message came after that morning, whenever the test runs
    assert await house.guard().look() == 0
    house.now = MORNING
    assert await house.guard().look() == 1


async def test_a_tenant_that_does_not_want_it_is_told_nothing(house: House, post: Post):
    await house.keep()
    await house.want(house.north, wanted=False)
    assert await house.guard().look() == 0
    await house.want(house.north)
    assert await house.guard().look() == 1


async def test_what_is_not_held_any_more_is_not_told(house: House, post: Post):
    gone, stays = await house.keep(ANN, BOB, subject="Gone"), await house.keep(subject="Stays")
    await house.store.delete(ALL, gone, [ANN], STRANGER)
    await house.guard().look()
    texts = post.told()
    assert "Gone" not in texts[ANN]
    assert "Stays" in texts[ANN]
    assert "Gone" in texts[BOB]
    assert await house.states(stays) == ["held"]


async def test_two_guards_at_once_send_each_digest_once(house: House, post: Post):
    names = [f"p{number}@north.example" for number in range(40)]
    for each in names:
        await house.keep(each)
    other = NextHop(house.hop._address, 5.0, "guard-2.example")
    sent = await asyncio.gather(house.guard().look(), house.guard(other).look())
    other.close()
    assert sum(sent) == 40
    assert all(sent), "and both do their part"
    assert sorted(post.told()) == sorted(names)


async def test_no_digest_is_taken_on_twice(house: House):
    for number in range(40):
        await house.keep(f"p{number}@north.example")
    await house.digest_store.prepare(ALL, MORNING.date(), MORNING)
    turns = await asyncio.gather(*(house.digest_store.take(ALL, MORNING.date()) for _ in range(50)))
    taken = [each for each in turns if each is not None]
    assert len(taken) == len(set(taken)) == 40


async def test_one_who_is_refused_stops_nobody_and_is_told_the_day_after(house: House, post: Post, capsys):
    for each in (ANN, BOB, "carol@north.example"):
        await house.keep(each)
    post.refused = {BOB: f"550 5.1.1 <{BOB}>: No such user"}
    metrics = Metrics()
    guard = house.guard(metrics=metrics)
    assert await guard.look() == 2
    assert BOB not in post.told()
    assert counted(metrics) == {"sent": 2, "refused": 1}
    log = capsys.readouterr().out
    assert "550 5.1.1" in log
    assert "@" not in log, "no address stands in the log"
    post.refused = {}
    assert [await guard.look(), await house.guard().look()] == [0, 0]
    house.now += timedelta(days=1)
    assert await guard.look() == 1
    assert list(post.told()) == [BOB]


async def test_while_the_next_hop_is_away_digests_wait_and_one_that_silences_it_holds_up_nobody(house, post):
    for each in (ANN, BOB):
        await house.keep(each)
    away = NextHop(("127.0.0.1", 1), 1.0, "guard.example")
    metrics = Metrics()
    guard = house.guard(away, metrics)
    assert await guard.look() == 0
    assert counted(metrics) == {"waits": 1}
    guard._hop = house.hop
    assert await guard.look() == 2, "on the same day, as soon as it is back"
    post.told()
    house.now += timedelta(days=1)
    for each in (ANN, BOB):
        await house.keep(each)
    guard._hop = away
    assert [await guard.look() for _ in range(TRIES)] == [0] * TRIES
    guard._hop = house.hop
    assert await guard.look() == 1, "the first was given up for the day, as silence was all that met it"
    assert counted(metrics) == {"waits": 1 + TRIES, "sent": 3, "refused": 1}
    assert list(post.told()) == [BOB]


async def test_a_guard_that_dies_over_a_digest_leaves_it_for_the_day_after(house: House, post: Post):
    await house.keep()
    await house.digest_store.prepare(ALL, MORNING.date(), MORNING)
    assert await house.digest_store.take(ALL, MORNING.date()) == DigestJob(house.north, ANN)
    assert await house.guard().look() == 0
    house.now += timedelta(days=1)
    assert await house.guard().look() == 1


async def test_a_tenant_never_sees_anothers_messages_for_the_same_address(house: House, post: Post):
    mine = await house.keep(ANN, subject="Mine")
    foreign = await house.keep(ANN, subject="Foreign", tenant=house.south)
    both = (house.north, house.south, mine), (house.south, house.north, foreign)
    for tenant, other, uid in both:
        found = await house.digest_store.collect(Scope.of(tenant), DigestJob(tenant, ANN), MORNING, 10)
        assert [*found.uids, *(each.message.uid for each in found.listed)] == [uid, uid]
        with pytest.raises(TenantForbidden):
            await house.digest_store.collect(Scope.of(other), DigestJob(tenant, ANN), MORNING, 10)
    assert await house.guard().look() == 1, "the domain is north's alone"
    (text,) = post.told().values()
    assert "Mine" in text
    assert "Foreign" not in text
    found = await house.digest_store.collect(ALL, DigestJob(house.south, ANN), MORNING, 10)
    assert found.uids == [foreign], "and what was told there was not told here"


async def test_an_address_outside_the_tenants_domains_is_told_nothing(house: House, post: Post):
    (default,) = [each for each in await house.tenants.list(ALL) if each.is_default]
    await house.want(default.uid)
    await house.keep("somebody@elsewhere.example", tenant=default.uid)
    assert await house.guard().look() == 0
    assert post.taken == []


async def test_more_than_are_listed_are_counted_and_told(house: House, post: Post):
    for number in range(5):
        await house.keep(subject=f"Number {number}")
    guard = house.guard()
    await guard.look()
    text = post.told()[ANN]
    assert [f"Number {number}" in text for number in range(5)] == [False, False, True, True, True]
    assert "2 older messages are held for you as well" in text
    house.now += timedelta(days=1)
    assert await guard.look() == 0
