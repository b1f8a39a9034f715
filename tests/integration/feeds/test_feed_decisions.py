"""Decisions on updates, and entries that feeds share: old previews, full lists, approval and stop during a run."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from mailwarden.database.pool import scoped
from mailwarden.feeds.job import LEASE
from mailwarden.feeds.model import Feed, FeedFormat, UpdateState, WaitReason, WarningList
from mailwarden.feeds.service import Outcome
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.store import ListScope
from mailwarden.policy.rehearsal import Rehearsal, Rehearsed
from tests.integration.feeds.feed_setup import ADA, ALL, FeedSetup


async def waiting_feed(feeds: FeedSetup) -> Feed:
    """Return a feed of acme of which an update waits, because it hits one good message."""
    acme = await feeds.tenant("acme", "acme.example")
    await feeds.good_mail(acme, ["a@once.example"], known=False)
    feeds.write(["once.example", "thief.example"])
    feed = await feeds.add(acme)
    assert await feeds.run(feed) is Outcome.WAITING
    return feed


async def approve(feeds: FeedSetup, feed: Feed) -> None:
    await feeds.service.approve(feed, (await feeds.newest(feed)).uid, ADA)


async def reasons(feeds: FeedSetup, feed: Feed) -> list[WaitReason]:
    update = await feeds.newest(feed)
    assert (update.state, update.decided, update.decided_by) == (UpdateState.WAITING, None, "")
    return [each.reason for each in update.preview.waits]


class Meanwhile(Rehearsal):
    """A rehearsal during which something happens."""

    def __init__(self, rehearsal: Rehearsal, happens: Callable[[], Awaitable[object]]) -> None:
        self._real = rehearsal
        self._happens = happens

    async def run(self, *values: object, **options: object) -> Rehearsed:
        await self._happens()
        return await self._real.run(*values, **options)  # type: ignore[arg-type]


async def test_an_approved_update_waits_while_its_list_is_full(feeds: FeedSetup) -> None:
    feed = await waiting_feed(feeds)
    await approve(feeds, feed)
    await feeds.lists.add_entries(feed.scope, "sender-block", [ListEntryInput("mine.example", "by hand")], ADA)
    await set_size(feeds, 99_999)
    assert await feeds.run(feed) is Outcome.WAITING
    assert await reasons(feeds, feed) == [WaitReason.LIST_FULL]
    assert "2 entries are left to add" in (await feeds.newest(feed)).preview.waits[0].sentence
    assert await feeds.failure(feed) == ""
    await set_size(feeds, 1)
    await approve(feeds, feed)
    assert await feeds.run(feed) is Outcome.APPLIED
    assert await feeds.blocked(feed.tenant) == ["mine.example", "once.example", "thief.example"]


async def set_size(feeds: FeedSetup, entries: int) -> None:
    async with feeds.database.connection() as connection, scoped(connection, "all"):
        await connection.execute("UPDATE lists SET entries = $1 WHERE name = 'sender-block'", entries)


async def test_warning_lists_count_when_an_update_is_applied(feeds: FeedSetup) -> None:
    feed = await waiting_feed(feeds)
    assert feed.tenant is not None
    await feeds.good_mail(feed.tenant, ["buyer@thief.example"])
    await approve(feeds, feed)
    assert await feeds.run(feed) is Outcome.APPLIED
    assert await feeds.blocked(feed.tenant) == ["once.example"]
    assert (await feeds.newest(feed)).preview.left_out == {WarningList.CORRESPONDENT: 1}


async def test_an_old_preview_is_rehearsed_again(feeds: FeedSetup) -> None:
    feed = await waiting_feed(feeds)
    assert feed.tenant is not None
    feeds.moment += timedelta(days=2)
    await feeds.good_mail(feed.tenant, ["b@once.example"], known=False)
    await approve(feeds, feed)
    assert await feeds.run(feed) is Outcome.WAITING, "one of the two messages was not in view"
    assert await reasons(feeds, feed) == [WaitReason.GOOD_MAIL]
    assert (await feeds.newest(feed)).preview.good_mail == 2
    assert await feeds.blocked(feed.tenant) == []
    feeds.moment += timedelta(days=2)
    await approve(feeds, feed)
    assert await feeds.run(feed) is Outcome.APPLIED, "the same messages were in view"
    assert await feeds.blocked(feed.tenant) == ["once.example", "thief.example"]


async def test_a_run_that_fails_leaves_an_update_waiting(feeds: FeedSetup) -> None:
    feed = await waiting_feed(feeds)
    waiting = await feeds.newest(feed)
    feeds.write(["<html>", "<body>Not found</body>"])
    assert await feeds.later(feed, hours=1) is None
    assert (await feeds.newest(feed)).uid == waiting.uid
    assert await reasons(feeds, feed) == [WaitReason.GOOD_MAIL]
    feeds.write(["other.example"])
    assert await feeds.later(feed, hours=1) is Outcome.APPLIED
    assert [each.state for each in await feeds.service.store.updates(feed)] == [
        UpdateState.APPLIED, UpdateState.SUPERSEDED,
    ]  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
async def test_an_update_may_be_approved_during_a_run(feeds: FeedSetup, *, fails: bool) -> None:
    feed = await waiting_feed(feeds)
    real = feeds.service._rehearsal

    async def happens() -> None:
        await approve(feeds, feed)
        if fails:
            raise TimeoutError

    feeds.service._rehearsal = Meanwhile(real, happens)
    feeds.write(["once.example", "other.example"])
    assert await feeds.later(feed, hours=2) is (None if fails else Outcome.UNCHANGED)
    feeds.service._rehearsal = real
    feeds.moment += timedelta(seconds=1)
    assert await feeds.job.look() == 1, "the approved update is due at once"
    assert [each.state for each in await feeds.service.store.updates(feed)] == [UpdateState.APPLIED] * 2
    assert await feeds.blocked(feed.tenant) == ["once.example", "other.example", "thief.example"]


async def test_a_stopped_run_ends_its_lease(feeds: FeedSetup) -> None:
    feed = await waiting_feed(feeds)
    started = asyncio.Event()

    async def happens() -> None:
        started.set()
        await asyncio.Event().wait()

    feeds.service._rehearsal = Meanwhile(feeds.service._rehearsal, happens)
    feeds.write(["other.example"])
    await feeds.service.update_soon(feed, ADA)
    feeds.job.start()
    async with asyncio.timeout(30):
        await started.wait()
        await feeds.job.stop()
    assert await feeds.service.store.claim(ALL, feeds.moment, LEASE, feed.uid) is not None
    assert await reasons(feeds, feed) == [WaitReason.GOOD_MAIL]


async def test_a_shared_entry_stays_until_the_last_ttl_is_over(feeds: FeedSetup) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    feeds.write(["both.example", "kept.example"])
    first = await feeds.add(acme, ttlDays=0)
    second = await feeds.service.add(acme, "second", replace(first.settings, ttl_days=7), ADA)
    for feed in (first, second):
        assert await feeds.run(feed) is Outcome.APPLIED
    feeds.write(["kept.example"])
    for feed in (second, first):
        assert await feeds.later(feed, hours=1) is Outcome.APPLIED
    assert await feeds.blocked(acme) == ["both.example", "kept.example"]
    await feeds.later(second, days=8)
    assert await feeds.blocked(acme) == ["kept.example"]


async def test_a_shared_entry_has_the_latest_expiry(feeds: FeedSetup) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    dates = [f"{feeds.moment + timedelta(days=days):%Y-%m-%dT00:00:00.000Z}" for days in range(10)]

    def write(until: str) -> None:
        feeds.file.write_text(f"value,until\nboth.example,{until}\nkept.example,\n")

    async def expires() -> str | None:
        return (await feeds.lists.find(ListScope(acme), "sender-block", "both.example")).expires

    write(dates[2])
    first = await feeds.add(acme, format=FeedFormat.CSV, mapping={"validUntil": "until"}, ttlDays=0)
    second = await feeds.service.add(acme, "second", first.settings, ADA)
    assert await feeds.run(first) is Outcome.APPLIED
    write(dates[5])
    assert await feeds.run(second) is Outcome.APPLIED
    assert await expires() == dates[5]
    write(dates[3])
    assert await feeds.run(first) is Outcome.APPLIED
    assert await expires() == dates[5], "the second feed has it longer"
    feeds.file.write_text("value,until\nkept.example,\n")
    assert await feeds.later(second, hours=1) is Outcome.APPLIED
    assert await expires() == dates[3], "only the first feed has it now"
