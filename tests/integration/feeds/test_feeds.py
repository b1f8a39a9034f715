"""Subscriptions with a real PostgreSQL: provenance, TTL, entries of users, decisions, leases and sightings."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from mailwarden.access.audit import AuditStore
from mailwarden.database.pool import scoped
from mailwarden.errors import NameTaken, NotFound, SchemaViolation, UpdateNotWaiting
from mailwarden.feeds.job import LEASE
from mailwarden.feeds.model import FeedFormat, UpdateState
from mailwarden.feeds.service import Outcome
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.store import ListScope
from mailwarden.model.scope import Scope
from tests.integration.feeds.feed_setup import ADA, ALL, FeedSetup


async def test_entries_carry_their_provenance_and_can_be_undone(feeds: FeedSetup) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    until = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
    feeds.file.write_text(
        f"url,score,until,id\nhxxp://evil[.]example/a,90,{until.isoformat()},ref-1\nb.example,10,,2\n"
    )
    mapping = {"value": "url", "confidence": "score", "validUntil": "until", "reference": "id"}
    feed = await feeds.add(acme, "url-block", format=FeedFormat.CSV, mapping=mapping, minConfidence=50)
    assert await feeds.run(feed) is Outcome.APPLIED
    entry = await feeds.lists.find(ListScope(acme), "url-block", "evil.example/a")
    assert (entry.created_by, entry.comment) == ("feed:poison", "confidence 90, ref-1")
    assert entry.expires is not None
    assert datetime.fromisoformat(entry.expires) == until
    assert (await feeds.newest(feed)).preview.skipped == {"confidence below 50": 1}
    changes = await feeds.lists.changes(ListScope(acme), "url-block")
    assert [(each.action, each.actor, each.added) for each in changes] == [("feed", "feed:poison", 1)]
    undone = await feeds.lists.undo(ListScope(acme), "url-block", changes[0].number, ADA)
    assert undone.restored == 1
    feeds.file.write_text(feeds.file.read_text() + "c.example,90,,3\n")
    assert await feeds.later(feed, hours=1) is Outcome.APPLIED
    assert await feeds.blocked(acme, "url-block") == ["c.example"], "what a user undid stays undone"


async def test_entries_of_users_stay_and_others_end_after_the_ttl(feeds: FeedSetup) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    scope = ListScope(acme)
    await feeds.lists.add_entries(scope, "sender-block", [ListEntryInput("mine.example", "by hand")], ADA)
    feeds.write(["mine.example", "edited.example", "dropped.example", "kept.example"])
    feed = await feeds.add(acme, ttlDays=7)
    assert await feeds.run(feed) is Outcome.APPLIED
    assert (await feeds.lists.find(scope, "sender-block", "mine.example")).comment == "by hand"
    await feeds.lists.add_entries(scope, "sender-block", [ListEntryInput("edited.example", "really bad")], ADA)
    feeds.write(["kept.example"])
    assert await feeds.later(feed, hours=1) is Outcome.APPLIED
    everything = ["dropped.example", "edited.example", "kept.example", "mine.example"]
    assert await feeds.blocked(acme) == everything, "a dropped entry stays for its TTL"
    await feeds.later(feed, days=6)
    assert await feeds.blocked(acme) == everything
    await feeds.later(feed, days=2)
    assert await feeds.blocked(acme) == ["edited.example", "kept.example", "mine.example"]
    assert await feeds.service.remove(feed, ADA) == 1
    assert await feeds.blocked(acme) == ["edited.example", "mine.example"]


async def test_an_entry_of_two_feeds_stays_while_one_has_it(feeds: FeedSetup) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    feeds.write(["both.example", "kept.example"])
    first = await feeds.add(acme, ttlDays=0)
    second = await feeds.service.add(acme, "second", first.settings, ADA)
    for feed in (first, second):
        assert await feeds.run(feed) is Outcome.APPLIED
    feeds.write(["kept.example"])
    await feeds.later(first, hours=1)
    assert await feeds.blocked(acme) == ["both.example", "kept.example"]
    await feeds.later(second, hours=1)
    assert await feeds.blocked(acme) == ["kept.example"]


async def test_a_decision_is_made_once_and_audited(feeds: FeedSetup) -> None:
    acme, club = await feeds.tenant("acme", "acme.example"), await feeds.tenant("club")
    await feeds.good_mail(acme, ["a@once.example"], known=False)
    feeds.write(["once.example"])
    feed = await feeds.add(acme)
    await feeds.run(feed)
    update = await feeds.newest(feed)
    with pytest.raises(NotFound):
        await feeds.service.store.find(Scope.of(club), feed.uid)
    await feeds.service.approve(feed, update.uid, ADA)
    for decide in (feeds.service.approve, feeds.service.reject):
        with pytest.raises(UpdateNotWaiting):
            await decide(feed, update.uid, ADA)
    assert await feeds.job.look() == 1, "an approved update is due at once"
    assert await feeds.blocked(acme) == ["once.example"]
    applied = await feeds.newest(feed)
    assert (applied.state, applied.decided_by) == (UpdateState.APPLIED, "user:ada")
    events = await AuditStore(feeds.database).find(Scope.of(acme))
    assert [each.action for each in events if each.action.startswith(("feeds.", "lists."))] == [
        "lists.feed", "feeds.approve", "feeds.add",
    ]  # fmt: skip


async def test_one_feed_runs_at_a_time(feeds: FeedSetup) -> None:
    feeds.write(["thief.example"])
    first = await feeds.add(None)
    second = await feeds.service.add(None, "second", first.settings, ADA)
    store = feeds.service.store
    assert await store.claim(ALL, feeds.moment + timedelta(seconds=5), LEASE) is not None
    assert await store.claim(ALL, feeds.moment + timedelta(seconds=5), LEASE) is None
    assert await store.claim(ALL, feeds.moment + timedelta(seconds=5), LEASE, second.uid) is None
    later = feeds.moment + LEASE + timedelta(seconds=9)
    assert await store.claim(ALL, later, LEASE, second.uid) is not None, "a process that died holds no lease for ever"


async def test_hits_are_reported_once_if_the_feed_wants_them(feeds: FeedSetup) -> None:
    acme = await feeds.tenant("acme", "acme.example")
    feeds.write(["hit.example", "quiet.example"])
    feed = await feeds.add(acme, sightingUrl="https://feeds.example/sightings")
    await feeds.run(feed)
    assert feeds.http.bodies == []
    async with feeds.database.connection() as connection, scoped(connection, "all"):
        await connection.execute(
            "UPDATE list_entries SET hits = 3, last_hit = '2026-11-17T10:00:00.000Z' WHERE entry = 'hit.example'"
        )
    for _ in range(2):
        await feeds.later(feed, hours=1)
    assert [msgspec.json.decode(body) for body in feeds.http.bodies] == [
        {"value": "hit.example", "count": 3, "lastHit": "2026-11-17T10:00:00.000Z", "reference": "line 1"}
    ]


async def test_a_credential_is_sealed_and_settings_are_checked(feeds: FeedSetup) -> None:
    feeds.write(["thief.example"])
    feed = await feeds.add(None)
    with pytest.raises(NameTaken):
        await feeds.add(None)
    for settings in ({"source": "http://a.example/"}, {"source": "feed.txt"}, {"listName": "sender-allow"}):
        with pytest.raises(SchemaViolation):
            await feeds.add(None, **settings)
    with pytest.raises(SchemaViolation):
        await feeds.service.add(None, "other", feed.settings, ADA, "no header")
    sealed = await feeds.service.add(None, "other", feed.settings, ADA, "Authorization: Bearer s3cret")
    stored = await feeds.service.store.find(ALL, sealed.uid)
    assert stored.sealed is not None
    assert b"s3cret" not in stored.sealed
    assert feeds.service.credential(stored) == {"Authorization": "Bearer s3cret"}
    keyed = replace(feed.settings, source="https://feeds.example/list.txt?key=s3cret")
    await feeds.service.add(None, "keyed", keyed, ADA)
    events = await AuditStore(feeds.database).find(ALL)
    assert "https://feeds.example/list.txt?…" in str(events)
    assert "s3cret" not in str(events), "the query of a source may contain a key"
