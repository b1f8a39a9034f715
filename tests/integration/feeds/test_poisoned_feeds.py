"""Poisoned feeds, through the real service with PostgreSQL: nothing is blocked without approval."""

import os
import resource
import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mailwarden.analysis.links.popular import TOP_NAMES
from mailwarden.feeds.model import UpdateState, WaitReason, WarningList
from mailwarden.feeds.service import Outcome
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.store import ListScope
from mailwarden.policy.rehearsal import Rehearsal
from tests.integration.feeds.feed_setup import ADA, ALL, POLICY, FeedSetup

FULL = os.environ.get("MAILWARDEN_FULL") == "1"
ENTRIES = 1_000_000 if FULL else 20_000
Note = Callable[[str], None]


def reasons(update: object) -> list[WaitReason]:
    return [each.reason for each in update.preview.waits]  # type: ignore[attr-defined]


@pytest.mark.parametrize("list_name", ["sender-block", "url-block"])
async def test_the_top_1000_domains_are_left_out(feeds: FeedSetup, list_name: str, note: Note) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    names = [line for line in TOP_NAMES.read_text().splitlines() if line and not line.startswith("#")][:1_000]
    feeds.write(names)
    feed = await feeds.add(acme, list_name)
    assert await feeds.run(feed) is Outcome.WAITING
    update = await feeds.newest(feed)
    assert WaitReason.LEFT_OUT in reasons(update)
    assert await feeds.count(acme, list_name) == 0
    public = {WarningList.POPULAR, WarningList.FREE_MAIL, WarningList.SHARED_HOST}
    assert set(update.preview.left_out) <= public
    left = update.preview.left_out_total
    assert left + update.preview.skipped.get("too broad", 0) == len(names)
    note(f"poisoned feed: top {len(names):,} domains into {list_name}: {left:,} left out, 0 blocked, update waits")
    assert update.preview.entries == 0, "approval would block popular domains"


async def test_the_customers_of_the_tenant_are_left_out(feeds: FeedSetup, note: Note) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    customers = [f"buyer@customer{number}.example" for number in range(40)]
    await feeds.good_mail(acme, customers)
    feeds.write([*(each.partition("@")[2] for each in customers), "mail.acme.example", "thief.example"])
    feed = await feeds.add(acme)
    assert await feeds.run(feed) is Outcome.WAITING
    update = await feeds.newest(feed)
    assert update.preview.left_out == {WarningList.CORRESPONDENT: 40, WarningList.OWN: 1}
    assert await feeds.count(acme) == 0
    await feeds.service.approve(feed, update.uid, ADA)
    assert await feeds.later(feed, minutes=1) is Outcome.APPLIED
    assert await feeds.blocked(acme) == ["thief.example"]
    note("poisoned feed: 40 customers and an own domain: 41 left out, 0 blocked, update waits")


@pytest.mark.parametrize("list_name", ["sender-block", "url-block"])
async def test_good_mail_of_30_days_is_enough_to_wait(feeds: FeedSetup, list_name: str, note: Note) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    await feeds.good_mail(acme, ["a@once.example", "b@once.example", "c@other.example"], known=False)
    host = "once.example" if list_name == "sender-block" else "www.once.example"
    feeds.write([host, "thief.example"])
    feed = await feeds.add(acme, list_name)
    assert await feeds.run(feed) is Outcome.WAITING
    update = await feeds.newest(feed)
    assert reasons(update) == [WaitReason.GOOD_MAIL]
    assert {each.entry for each in update.preview.messages} == {host}
    assert update.preview.good_mail == 2
    assert await feeds.count(acme, list_name) == 0
    note(f"poisoned feed: a domain with 2 good messages into {list_name}: 0 blocked, update waits")


async def test_a_budget_allows_so_much_good_mail(feeds: FeedSetup) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    await feeds.good_mail(acme, ["a@once.example", "b@once.example"], known=False)
    feeds.write(["once.example"])
    feed = await feeds.add(acme, goodMailBudget=2)
    assert await feeds.run(feed) is Outcome.APPLIED
    assert (await feeds.newest(feed)).preview.good_mail == 2


async def test_a_million_entries_at_once_wait(feeds: FeedSetup, note: Note) -> None:
    feeds.write(f"host{number}.thief{number % 997}.example" for number in range(ENTRIES))
    feed = await feeds.add(None, "url-block")
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    assert await feeds.run(feed) is Outcome.WAITING
    took, grown = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    update = await feeds.newest(feed)
    assert reasons(update) == [WaitReason.GROWTH]
    assert (update.preview.added, update.preview.rehearsed) == (ENTRIES, ENTRIES)
    assert await feeds.count(None, "url-block") == 0
    note(f"poisoned feed: {ENTRIES:,} entries at once: 0 blocked, update waits ({took:.0f} s, {grown // 1024} MiB)")
    await feeds.service.approve(feed, update.uid, ADA)
    began = time.monotonic()
    assert await feeds.later(feed, minutes=1) is Outcome.APPLIED
    assert await feeds.count(None, "url-block") == ENTRIES
    note(f"poisoned feed: {ENTRIES:,} entries applied after approval in {time.monotonic() - began:.0f} s")


async def test_more_entries_than_the_list_holds_change_nothing(feeds: FeedSetup, note: Note) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    feeds.write(f"host{number}.thief.example" for number in range(100_001))
    feed = await feeds.add(acme, "url-block", maxChange=1_000_000)
    assert await feeds.run(feed) is None
    assert "has room for 100,000" in await feeds.failure(feed)
    assert await feeds.count(acme, "url-block") == 0
    note("poisoned feed: more entries than maxSize: 0 blocked, update rejected")


async def test_a_feed_that_empties_itself_removes_nothing(feeds: FeedSetup, note: Note) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    feeds.write(f"thief{number}.example" for number in range(50))
    feed = await feeds.add(acme, ttlDays=0)
    assert await feeds.run(feed) is Outcome.APPLIED
    assert await feeds.count(acme) == 50
    for content, waits in (
        ([], [WaitReason.EMPTY, WaitReason.SHRINK]),
        (["# nothing"], [WaitReason.EMPTY, WaitReason.SHRINK]),
        ([f"thief{number}.example" for number in range(10)], [WaitReason.SHRINK]),
    ):
        feeds.write(content)
        assert await feeds.later(feed, hours=1) is Outcome.WAITING
        assert reasons(await feeds.newest(feed)) == waits
        assert await feeds.count(acme) == 50
    feeds.write(["<html>", "<body>Not found</body>"])
    assert await feeds.later(feed, hours=1) is None
    assert "are no entries of sender-block" in await feeds.failure(feed)
    assert await feeds.count(acme) == 50
    note("poisoned feed: a feed that empties itself: 0 of 50 entries removed, update waits")


async def test_an_incomplete_rehearsal_waits(feeds: FeedSetup, note: Note) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    feeds.write(["thief.example"])
    feed = await feeds.add(acme)
    feeds.service._rehearsal = Rehearsal(feeds.service._rehearsal._history, POLICY, feeds.entries, seconds=-1)
    assert await feeds.run(feed) is Outcome.WAITING
    assert reasons(await feeds.newest(feed)) == [WaitReason.INCOMPLETE]
    assert await feeds.count(acme) == 0
    note("poisoned feed: no time for the rehearsal: 0 blocked, update waits")


async def test_entries_wait_where_history_cannot_see_their_messages(feeds: FeedSetup, note: Note) -> None:
    acme, club = await feeds.tenant("acme", "acme.example"), await feeds.tenant("club", "club.example")
    relay = [ListEntryInput("192.0.2.9", "border")]
    await feeds.lists.add_entries(ListScope(club), "trusted-relays", relay, ADA)
    feeds.write(["93.184.215.14"])
    own = await feeds.add(acme, "ip-block")
    assert await feeds.run(own) is Outcome.APPLIED, "relays of another tenant are not on the way of this mail"
    assert await feeds.service.remove(own, ADA) == 1
    every = await feeds.add(None, "ip-block")
    await feeds.lists.add_entries(ListScope(None), "trusted-relays", relay, ADA)
    own = await feeds.add(acme, "ip-block")
    feeds.file.with_name("hashes.txt").write_text("a" * 64 + "\n")
    hashes = feeds.file.with_name("hashes.txt")
    files = await feeds.service.add(
        acme, "files", replace(own.settings, source=str(hashes), list_name="file-hash-block"), ADA
    )
    for feed in (every, own, files):
        assert await feeds.run(feed) is Outcome.WAITING
        assert reasons(await feeds.newest(feed)) == [WaitReason.INCOMPLETE]
        assert await feeds.count(feed.tenant, feed.settings.list_name) == 0
    knowing = await feeds.service.add(acme, "knowing", replace(files.settings, accept_unseen=True), ADA)
    assert await feeds.run(knowing) is Outcome.APPLIED
    note("poisoned feed: addresses behind relays and file hashes: 0 blocked, update waits")


async def test_correspondents_of_another_tenant_do_not_leak(feeds: FeedSetup, note: Note) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    club = await feeds.tenant("club", "club.example")
    await feeds.good_mail(club, ["secret@partner.example"])
    feeds.write(["partner.example", "secret@partner.example", "club.example"])
    feed = await feeds.add(acme)
    assert await feeds.run(feed) is Outcome.APPLIED, "another tenant's mail is no reason that acme may see"
    update = await feeds.newest(feed)
    assert (update.preview.left_out, update.preview.messages, update.preview.good_mail) == ({}, (), 0)
    assert await feeds.count(club) == 0
    other = await feeds.service.add(None, "global", feed.settings, ADA)
    assert await feeds.run(other) is Outcome.WAITING
    assert WaitReason.GOOD_MAIL in reasons(await feeds.newest(other))
    note("poisoned feed: correspondents of another tenant: not named to this tenant; a global feed waits")


async def test_a_rejected_update_is_not_asked_again(feeds: FeedSetup) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    await feeds.good_mail(acme, ["a@once.example"], known=False)
    feeds.write(["once.example"])
    feed = await feeds.add(acme)
    assert await feeds.run(feed) is Outcome.WAITING
    assert await feeds.later(feed, hours=1) is Outcome.UNCHANGED
    update = await feeds.newest(feed)
    await feeds.service.reject(feed, update.uid, ADA)
    assert await feeds.later(feed, hours=1) is Outcome.UNCHANGED
    assert (await feeds.newest(feed)).state is UpdateState.REJECTED
    assert await feeds.count(acme) == 0
    feeds.write(["thief.example"])
    assert await feeds.later(feed, hours=1) is Outcome.APPLIED
    assert await feeds.blocked(acme) == ["thief.example"]
    assert (await feeds.service.store.list(ALL))[0].failure == ""
