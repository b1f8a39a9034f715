"""Feeds in PostgreSQL: subscriptions, their entries, updates with their candidates, and the lease of a run.

An update is staged in a table of candidates and compared there, so that a million entries need no memory of this
process. Row-level security shows a transaction the feeds of its own scope alone.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import cast
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct

from mailwarden.access.audit import record_event
from mailwarden.database.pool import EVERYTHING, Connection, Database, Row, scoped
from mailwarden.database.visible import in_scope
from mailwarden.errors import NameTaken, NotFound, TenantNotFound, UpdateNotWaiting
from mailwarden.feeds.model import Difference, Feed, FeedSettings, Preview, Update, UpdateState
from mailwarden.lists.store import ListScope
from mailwarden.model.scope import Actor, Scope

STATEMENT_MS = 60_000  # a comparison of a million entries takes some seconds
KEPT_UPDATES = 50  # of one feed
WAIT = 10.0
_LOCK = 1_718_379_891  # the class of our advisory lock

_FEED = """
uid, tenant, name, settings::text AS settings, secret, created, created_by, next_run, etag, modified, fetched,
failure, failures
"""
_INSERT = f"INSERT INTO feeds (tenant, name, settings, created_by) VALUES ($1, $2, $3::jsonb, $4) RETURNING {_FEED}"  # noqa: S608
_SEAL = "UPDATE feeds SET secret = $2 WHERE uid = $1"
_LIST = f"""
SELECT {_FEED} FROM feeds
WHERE {in_scope()} ORDER BY tenant NULLS FIRST, lower(name) LIMIT 1000
"""  # noqa: S608
_FIND = f"SELECT {_FEED} FROM feeds WHERE uid = $1 AND {in_scope(scope='$2')}"  # noqa: S608
_REMOVE = "DELETE FROM feeds WHERE uid = $1"
_LEASED = "SELECT EXISTS (SELECT FROM feeds WHERE leased_until > $1)"
_CLAIM = f"""
UPDATE feeds SET leased_until = $2 WHERE uid = (
    SELECT uid FROM feeds WHERE ($3::uuid IS NULL AND next_run <= $1) OR uid = $3 ORDER BY next_run LIMIT 1
) RETURNING {_FEED}
"""  # noqa: S608
# A feed that became due during the run, by an approval or by a user, stays due.
_FINISH = """
UPDATE feeds SET leased_until = NULL, failure = $3, failures = CASE WHEN $3 = '' THEN 0 ELSE failures + 1 END,
    next_run = CASE WHEN next_run = $4 THEN $2 ELSE next_run END
WHERE uid = $1
"""
_RELEASE = "UPDATE feeds SET leased_until = NULL WHERE uid = $1"
_FETCHED = "UPDATE feeds SET fetched = $2, etag = $3, modified = $4 WHERE uid = $1"

_UPDATE = "uid, feed, fetched, state, preview::text AS preview, decided, decided_by"
_BEGIN = "INSERT INTO feed_updates (feed, fetched, digest, state) VALUES ($1, $2, $3, 'reading') RETURNING uid"
_DISCARD = "DELETE FROM feed_updates WHERE feed = $1 AND state = 'reading'"
_SUPERSEDE = """
UPDATE feed_updates SET state = 'superseded', decided = $3 WHERE feed = $1 AND uid <> $2 AND state = 'waiting'
"""
_OTHER_APPROVED = "SELECT EXISTS (SELECT FROM feed_updates WHERE feed = $1 AND uid <> $2 AND state = 'applying')"
_PLACE = "UPDATE feed_updates SET state = $2, preview = $3::jsonb, decided = NULL, decided_by = '' WHERE uid = $1"
_DROP_CANDIDATES = """
DELETE FROM feed_candidates WHERE update_uid IN (
    SELECT uid FROM feed_updates WHERE feed = $1 AND state NOT IN ('reading', 'waiting', 'applying'))
"""
_TRIM = """
DELETE FROM feed_updates WHERE feed = $1 AND state NOT IN ('reading', 'waiting', 'applying') AND uid NOT IN (
    SELECT uid FROM feed_updates WHERE feed = $1 ORDER BY fetched DESC LIMIT $2)
"""
_LATEST = """
SELECT digest, state FROM feed_updates WHERE feed = $1 AND state IN ('waiting', 'applied', 'rejected')
ORDER BY fetched DESC LIMIT 1
"""
_OPEN = f"SELECT {_UPDATE} FROM feed_updates WHERE feed = $1 AND state = ANY ($2)"  # noqa: S608
_NEWEST = f"""
SELECT {_UPDATE} FROM feed_updates WHERE feed = $1 AND state <> 'reading' ORDER BY fetched DESC LIMIT $2
"""  # noqa: S608
_STAGE = """
INSERT INTO feed_candidates (update_uid, entry, confidence, reference, expires)
SELECT $1, * FROM unnest($2::text[], $3::smallint[], $4::text[], $5::text[])
ON CONFLICT (update_uid, entry) DO UPDATE SET
    confidence = greatest(feed_candidates.confidence, EXCLUDED.confidence),
    expires = CASE WHEN feed_candidates.expires IS NULL OR EXCLUDED.expires IS NULL THEN NULL
                   ELSE greatest(feed_candidates.expires, EXCLUDED.expires) END
"""
_COMPARE = """
SELECT count(*) FILTER (WHERE given.entry IS NOT NULL) AS entries,
       count(*) FILTER (WHERE had.entry IS NOT NULL AND had.dropped IS NULL) AS known,
       count(*) FILTER (WHERE had.entry IS NULL) AS added,
       count(*) FILTER (WHERE given.entry IS NULL AND had.dropped IS NULL) AS dropped,
       count(*) FILTER (WHERE given.entry IS NOT NULL AND had.entry IS NOT NULL
                          AND had.expires IS DISTINCT FROM given.expires) AS changed
FROM (SELECT entry, expires FROM feed_candidates WHERE update_uid = $1) AS given
FULL JOIN (SELECT entry, expires, dropped FROM feed_entries WHERE feed = $2) AS had USING (entry)
"""
_NEW = """
SELECT entry, confidence, reference, expires FROM feed_candidates AS given
WHERE update_uid = $1 AND entry > $3 AND NOT EXISTS (
    SELECT FROM feed_entries AS had WHERE had.feed = $2 AND had.entry = given.entry)
ORDER BY entry LIMIT $4
"""
_CHANGED = """
SELECT given.entry, given.confidence, given.reference, given.expires
FROM feed_candidates AS given JOIN feed_entries AS had ON had.feed = $2 AND had.entry = given.entry
WHERE update_uid = $1 AND given.entry > $3 AND had.expires IS DISTINCT FROM given.expires
ORDER BY given.entry LIMIT $4
"""
_TAKE = """
INSERT INTO feed_entries (feed, entry, confidence, reference, expires, first_seen)
SELECT $2, entry, confidence, reference, expires, $3 FROM feed_candidates
WHERE update_uid = $1 AND entry = ANY ($4::text[])
ON CONFLICT (feed, entry) DO UPDATE SET
    confidence = EXCLUDED.confidence, reference = EXCLUDED.reference, expires = EXCLUDED.expires, dropped = NULL
"""
_RETURNED = """
UPDATE feed_entries AS had SET dropped = NULL FROM feed_candidates AS given
WHERE had.feed = $2 AND had.dropped IS NOT NULL AND given.update_uid = $1 AND given.entry = had.entry
"""
_DROPPED = """
UPDATE feed_entries AS had SET dropped = $3 WHERE feed = $2 AND dropped IS NULL AND NOT EXISTS (
    SELECT FROM feed_candidates AS given WHERE given.update_uid = $1 AND given.entry = had.entry)
"""
# Entries that the feed dropped long ago, or that expired.
_OVER = """
SELECT entry, coalesce(dropped <= $2, false) AS dropped FROM feed_entries
WHERE feed = $1 AND (dropped <= $2 OR expires <= $3) ORDER BY entry LIMIT $4
"""
# Entries that other feeds of the list have, or dropped within their TTL, with the latest expiry (NULL: never).
_HELD = """
SELECT other.entry, CASE WHEN bool_and(other.expires IS NOT NULL) THEN max(other.expires) END AS expires
FROM feed_entries AS other JOIN feeds ON feeds.uid = other.feed
WHERE other.entry = ANY ($2::text[]) AND other.feed <> $1 AND feeds.tenant IS NOT DISTINCT FROM $3
  AND feeds.settings ->> 'listName' = $4 AND (other.expires IS NULL OR other.expires > $6)
  AND (other.dropped IS NULL
       OR other.dropped > $5::timestamptz - make_interval(days => (feeds.settings ->> 'ttlDays')::integer))
GROUP BY other.entry
"""
_FORGET = "DELETE FROM feed_entries WHERE feed = $1 AND entry = ANY ($2::text[])"
_TOTALS = """
SELECT count(*) AS entries, count(*) FILTER (WHERE dropped IS NOT NULL) AS dropped FROM feed_entries WHERE feed = $1
"""
_SIGHTED = """
SELECT given.entry, list.hits, list.last_hit, given.reported, given.reference
FROM feed_entries AS given JOIN list_entries AS list ON list.entry = given.entry AND list.list_id = (
    SELECT list_id FROM lists WHERE tenant IS NOT DISTINCT FROM $2 AND name = $3)
WHERE given.feed = $1 AND list.hits > given.reported ORDER BY list.last_hit LIMIT $4
"""
_REPORTED = """
UPDATE feed_entries AS given SET reported = seen.hits
FROM unnest($2::text[], $3::bigint[]) AS seen (entry, hits) WHERE feed = $1 AND given.entry = seen.entry
"""
_DECIDE = f"""
UPDATE feed_updates SET state = $3, decided = $4, decided_by = $5 WHERE uid = $1 AND feed = $2 AND state = 'waiting'
RETURNING {_UPDATE}
"""  # noqa: S608


class Candidate(Struct, frozen=True):
    """An entry of an update in stored form; `expires` as lists store it."""

    entry: str
    confidence: int
    reference: str
    expires: str | None = None


class Sighting(Struct, frozen=True):
    """Hits of an entry of a feed, and how many of them were not reported yet."""

    entry: str
    hits: int
    new: int
    last_hit: str
    reference: str


class FeedStore:
    """All SQL about feeds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, scope: ListScope, name: str, settings: FeedSettings, actor: Actor) -> Feed:
        """Create a feed; it is due at once."""
        async with self._in(scope) as connection:
            try:
                row = await connection.fetchrow(
                    _INSERT, scope.tenant, name, msgspec.json.encode(settings).decode(), actor.name
                )
            except asyncpg.UniqueViolationError:
                raise NameTaken(f"A feed of this scope is named `{name}` already.") from None
            except asyncpg.ForeignKeyViolationError:
                raise TenantNotFound("There is no such tenant.") from None
            assert row is not None
            details = {"list": settings.list_name, "source": settings.shown_source, "format": settings.format}
            await record_event(connection, actor, "feeds.add", name, details, tenant=scope.tenant)
        return _feed_of(row)

    async def seal(self, feed: Feed, sealed: bytes) -> None:
        async with self._in(feed.scope) as connection:
            await connection.execute(_SEAL, feed.uid, sealed)

    async def reencrypt(self, feed: Feed, sealed: bytes) -> bool:
        """Replace the sealed credential; return False if it changed or was deleted meanwhile."""
        async with self._in(feed.scope) as connection:
            done = await connection.execute(
                "UPDATE feeds SET secret = $2 WHERE uid = $1 AND secret = $3", feed.uid, sealed, feed.sealed
            )
        return done == "UPDATE 1"

    async def list(self, scope: Scope) -> Sequence[Feed]:
        """Return the feeds of the tenants of the scope; the deployment also has those of the global lists."""
        async with self._database.connection() as connection, scoped(connection, EVERYTHING):
            rows = await connection.fetch(_LIST, scope.uids())
        return [_feed_of(row) for row in rows]

    async def find(self, scope: Scope, uid: UUID) -> Feed:
        async with self._database.connection() as connection, scoped(connection, EVERYTHING):
            row = await connection.fetchrow(_FIND, uid, scope.uids())
        if row is None:
            raise NotFound("There is no such feed.")
        return _feed_of(row)

    async def remove(self, feed: Feed, actor: Actor) -> None:
        async with self._in(feed.scope) as connection:
            await connection.execute(_REMOVE, feed.uid)
            await record_event(connection, actor, "feeds.remove", feed.name, {}, tenant=feed.tenant)

    async def claim(self, scope: Scope, now: datetime, lease: timedelta, feed: UUID | None = None) -> Feed | None:
        """Lease the feed that is due first, or the given one; None if none is due or another one is running."""
        assert scope.tenants is None  # the deployment runs the feeds
        async with self._database.connection() as connection, scoped(connection, EVERYTHING):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            if await connection.fetchval(_LEASED, now):
                return None
            row = await connection.fetchrow(_CLAIM, now, now + lease, feed)
        return None if row is None else _feed_of(row)

    async def finish(self, feed: Feed, next_run: datetime, failure: str = "") -> None:
        """End the lease."""
        async with self._in(feed.scope) as connection:
            await connection.execute(_FINISH, feed.uid, next_run, failure, feed.next_run)

    async def release(self, feed: Feed) -> None:
        """End the lease of a run that was broken off; the feed stays due."""
        async with self._in(feed.scope) as connection:
            await connection.execute(_RELEASE, feed.uid)

    async def set_due(self, feed: Feed, now: datetime, actor: Actor | None = None) -> None:
        """Let the job run the feed next, because a user asked for it or an update was approved."""
        async with self._in(feed.scope) as connection:
            await connection.execute("UPDATE feeds SET next_run = $2 WHERE uid = $1", feed.uid, now)
            if actor is not None:
                await record_event(connection, actor, "feeds.update", feed.name, {}, tenant=feed.tenant)

    async def set_fetched(self, feed: Feed, now: datetime, etag: str, modified: str) -> None:
        async with self._in(feed.scope) as connection:
            await connection.execute(_FETCHED, feed.uid, now, etag, modified)

    async def totals(self, feed: Feed) -> tuple[int, int]:
        """Return how many entries of the feed are known, and how many of them it dropped."""
        async with self._in(feed.scope) as connection:
            row = await connection.fetchrow(_TOTALS, feed.uid)
        assert row is not None
        return cast("int", row["entries"]), cast("int", row["dropped"])

    # Updates

    async def latest(self, feed: Feed) -> tuple[bytes, UpdateState] | None:
        """Return the digest and the state of the newest update that counts."""
        async with self._in(feed.scope) as connection:
            row = await connection.fetchrow(_LATEST, feed.uid)
        return None if row is None else (cast("bytes", row["digest"]), UpdateState(str(row["state"])))

    async def begin(self, feed: Feed, now: datetime, digest: bytes) -> UUID:
        """Begin an update beside one that waits; one that was broken off while it was read is discarded."""
        async with self._in(feed.scope) as connection:
            await connection.execute(_DISCARD, feed.uid)
            await connection.execute(_DROP_CANDIDATES, feed.uid)
            await connection.execute(_TRIM, feed.uid, KEPT_UPDATES)
            return cast("UUID", await connection.fetchval(_BEGIN, feed.uid, now, digest))

    async def discard(self, feed: Feed) -> None:
        """Discard an update that could not be read or rehearsed."""
        async with self._in(feed.scope) as connection:
            await connection.execute(_DISCARD, feed.uid)

    async def stage(self, feed: Feed, update: UUID, candidates: Sequence[Candidate]) -> None:
        unique = {candidate.entry: candidate for candidate in candidates}.values()
        columns = (
            [each.entry for each in unique], [each.confidence for each in unique],
            [each.reference for each in unique], [each.expires for each in unique],
        )  # fmt: skip
        async with self._in(feed.scope) as connection:
            await connection.execute(_STAGE, update, *columns)

    async def compare(self, feed: Feed, update: UUID) -> Difference:
        async with self._in(feed.scope) as connection:
            row = await connection.fetchrow(_COMPARE, update, feed.uid)
        assert row is not None
        names = ("entries", "known", "added", "dropped", "changed")
        return Difference(*(cast("int", row[name]) for name in names))

    async def new_entries(self, feed: Feed, update: UUID, size: int) -> AsyncIterator[Sequence[Candidate]]:
        """Yield the entries that the feed did not have, in order; none of them is held longer than its page."""
        async for page in self._pages(_NEW, feed, update, size):
            yield page

    async def changed_entries(self, feed: Feed, update: UUID, size: int) -> AsyncIterator[Sequence[Candidate]]:
        """Yield the entries whose expiry differs."""
        async for page in self._pages(_CHANGED, feed, update, size):
            yield page

    async def _pages(self, statement: str, feed: Feed, update: UUID, size: int) -> AsyncIterator[Sequence[Candidate]]:
        after = ""
        while True:
            async with self._in(feed.scope) as connection:
                rows = await connection.fetch(statement, update, feed.uid, after, size)
            if not rows:
                return
            page = [_candidate_of(row) for row in rows]
            after = page[-1].entry
            yield page

    async def unstage(self, feed: Feed, update: UUID, entries: Sequence[str]) -> None:
        """Take candidates out of an update."""
        statement = "DELETE FROM feed_candidates WHERE update_uid = $1 AND entry = ANY ($2::text[])"
        async with self._in(feed.scope) as connection:
            await connection.execute(statement, update, list(entries))

    async def place(self, feed: Feed, update: UUID, state: UpdateState, preview: Preview, now: datetime) -> bool:
        """Let a rehearsed update wait or be applied, in place of one that waits.

        Return False, and change nothing, if another update was approved meanwhile.
        """
        async with self._in(feed.scope) as connection:
            await connection.execute(_SUPERSEDE, feed.uid, update, now)  # waits for a decision that is being stored
            if await connection.fetchval(_OTHER_APPROVED, feed.uid, update):
                return False
            await connection.execute(_PLACE, update, state, msgspec.json.encode(preview).decode())
            await connection.execute(_DROP_CANDIDATES, feed.uid)
        return True

    async def set_preview(self, feed: Feed, update: UUID, preview: Preview) -> None:
        statement = "UPDATE feed_updates SET preview = $2::jsonb WHERE uid = $1"
        async with self._in(feed.scope) as connection:
            await connection.execute(statement, update, msgspec.json.encode(preview).decode())

    async def open_update(self, feed: Feed, *states: UpdateState) -> Update | None:
        async with self._in(feed.scope) as connection:
            row = await connection.fetchrow(_OPEN, feed.uid, list(states))
        return None if row is None else _update_of(row)

    async def updates(self, feed: Feed, limit: int = 20) -> Sequence[Update]:
        async with self._in(feed.scope) as connection:
            rows = await connection.fetch(_NEWEST, feed.uid, limit)
        return [_update_of(row) for row in rows]

    async def decide(self, feed: Feed, update: UUID, state: UpdateState, now: datetime, actor: Actor) -> Update:
        """Approve or reject an update that waits; raise UpdateNotWaiting if it does not wait any more."""
        action = "feeds.approve" if state is UpdateState.APPLYING else "feeds.reject"
        async with self._in(feed.scope) as connection:
            row = await connection.fetchrow(_DECIDE, update, feed.uid, state, now, actor.name)
            if row is None:
                raise UpdateNotWaiting("This update does not wait any more. Open the feed again to see its state.")
            decided = _update_of(row)
            preview = decided.preview
            details = {
                "update": update, "added": preview.added, "dropped": preview.dropped, "goodMail": preview.good_mail,
                "reasons": [wait.reason for wait in preview.waits],
            }  # fmt: skip
            await record_event(connection, actor, action, feed.name, details, tenant=feed.tenant)
        return decided

    # Entries

    async def take(self, feed: Feed, update: UUID, entries: Sequence[str], now: datetime) -> None:
        """Note that these candidates are entries of the feed."""
        async with self._in(feed.scope) as connection:
            await connection.execute(_TAKE, update, feed.uid, now, list(entries))

    async def complete(self, feed: Feed, update: UUID, now: datetime) -> None:
        """Note which entries the feed has again and which it dropped; the update is applied."""
        async with self._in(feed.scope) as connection:
            await connection.execute(_RETURNED, update, feed.uid)
            await connection.execute(_DROPPED, update, feed.uid, now)
            await connection.execute(
                "UPDATE feed_updates SET state = 'applied', decided = coalesce(decided, $2) WHERE uid = $1", update, now
            )
            await connection.execute(_DROP_CANDIDATES, feed.uid)

    async def over(self, feed: Feed, dropped: datetime, expired: str, limit: int) -> Sequence[tuple[str, bool]]:
        """Return entries that the feed dropped before that time (True) or that expired (False)."""
        async with self._in(feed.scope) as connection:
            rows = await connection.fetch(_OVER, feed.uid, dropped, expired, limit)
        return [(str(row["entry"]), bool(row["dropped"])) for row in rows]

    async def held_by_others(
        self, feed: Feed, entries: Sequence[str], now: datetime, expired: str
    ) -> Mapping[str, str | None]:
        """Return those of the entries that other feeds of the list have within their TTL, with the latest expiry."""
        place = feed.tenant, feed.settings.list_name
        async with self._in(feed.scope) as connection:
            rows = await connection.fetch(_HELD, feed.uid, list(entries), *place, now, expired)
        return {str(row["entry"]): cast("str | None", row["expires"]) for row in rows}

    async def drop_all(self, feed: Feed, since: datetime) -> None:
        """Note that the feed has none of its entries any more, since that time."""
        async with self._in(feed.scope) as connection:
            await connection.execute("UPDATE feed_entries SET dropped = $2 WHERE feed = $1", feed.uid, since)

    async def forget(self, feed: Feed, entries: Sequence[str]) -> None:
        async with self._in(feed.scope) as connection:
            await connection.execute(_FORGET, feed.uid, list(entries))

    async def sightings(self, feed: Feed, limit: int) -> Sequence[Sighting]:
        """Return entries with hits that were not reported yet, the longest waiting first."""
        async with self._in(feed.scope) as connection:
            rows = await connection.fetch(_SIGHTED, feed.uid, feed.tenant, feed.settings.list_name, limit)
        return [
            Sighting(
                str(row["entry"]),
                cast("int", row["hits"]),
                cast("int", row["hits"]) - cast("int", row["reported"]),
                str(row["last_hit"] or ""),
                str(row["reference"]),
            )
            for row in rows
        ]

    async def set_reported(self, feed: Feed, sightings: Sequence[Sighting]) -> None:
        columns = [sighting.entry for sighting in sightings], [sighting.hits for sighting in sightings]
        async with self._in(feed.scope) as connection:
            await connection.execute(_REPORTED, feed.uid, *columns)

    @asynccontextmanager
    async def _in(self, scope: ListScope) -> AsyncIterator[Connection]:
        first = f"SET LOCAL statement_timeout = {STATEMENT_MS}"
        async with (
            self._database.connection(WAIT) as connection,
            scoped(connection, scope.setting, first=first),
        ):
            yield connection


def _feed_of(row: Row) -> Feed:
    return Feed(
        uid=cast("UUID", row["uid"]),
        tenant=cast("UUID | None", row["tenant"]),
        name=str(row["name"]),
        settings=msgspec.json.decode(str(row["settings"]), type=FeedSettings),
        created=cast("datetime", row["created"]),
        created_by=str(row["created_by"]),
        next_run=cast("datetime", row["next_run"]),
        etag=str(row["etag"]),
        modified=str(row["modified"]),
        fetched=cast("datetime | None", row["fetched"]),
        failure=str(row["failure"]),
        failures=cast("int", row["failures"]),
        sealed=cast("bytes | None", row["secret"]),
    )


def _update_of(row: Row) -> Update:
    return Update(
        cast("UUID", row["uid"]),
        cast("UUID", row["feed"]),
        cast("datetime", row["fetched"]),
        UpdateState(str(row["state"])),
        msgspec.json.decode(str(row["preview"]), type=Preview),
        cast("datetime | None", row["decided"]),
        str(row["decided_by"]),
    )


def _candidate_of(row: Row) -> Candidate:
    return Candidate(
        str(row["entry"]), cast("int", row["confidence"]), str(row["reference"]), cast("str | None", row["expires"])
    )
