"""What the replicas ask PostgreSQL: all lists in one snapshot, what changed since another one, and hits written back.

A replica remembers the snapshot it has seen, not the highest number: what that snapshot saw is known, and whatever a
later one sees besides is new, in whatever order transactions began and ended. No open transaction holds it up.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import cast
from uuid import UUID

from mailwarden.database.pool import Connection, Database, Row
from mailwarden.database.scoped import EVERYTHING, scoped
from mailwarden.errors import StorageUnavailable
from mailwarden.lists.hits import Hits
from mailwarden.lists.replica_copy import DELIMITER, QUOTE
from mailwarden.lists.replica_writer import EntryRow, ListChange, ListRow, Position

KEPT_HOURS = 48  # a replica that was away for longer is copied anew
KEPT_DAYS = 30  # people may look back and undo for so long
PAGE = 200  # changes, of at most 500 entries each but for imports
PAGE_ENTRIES = 100_000  # after so many a page ends early
_PURGED = 5_000
_HITS = 500

_HEAD = """
SELECT pg_current_snapshot()::text AS snapshot, extract(epoch FROM now())::float8 AS moment,
       (SELECT system_identifier FROM pg_control_system())
       || '/' || (SELECT timeline_id FROM pg_control_checkpoint())
       || '/' || (SELECT oid FROM pg_database WHERE datname = current_database()) AS source
"""
_LISTS = "SELECT list_id, tenant, name, entries FROM lists WHERE entries > 0"
_SOME_LISTS = "SELECT list_id, tenant, name, entries FROM lists WHERE list_id = ANY ($1::integer[])"
_COPY = "SELECT list_id, entry, expires, comment FROM list_entries ORDER BY list_id, entry"
_CHANGES = """
SELECT change, transaction::text AS transaction, list_id, entries FROM (
    SELECT *, sum(touched) OVER (ORDER BY transaction, change) - touched AS before FROM (
        SELECT change, transaction, list_id, entries, touched FROM list_changes
        WHERE transaction >= pg_snapshot_xmin($1::text::pg_snapshot)
          AND NOT pg_visible_in_snapshot(transaction, $1::text::pg_snapshot)
          AND (transaction, change) > ($2::text::xid8, $3::bigint)
        ORDER BY transaction, change LIMIT $4
    ) AS page
) AS summed WHERE before < $5 ORDER BY transaction, change
"""
_PRESENT = """
SELECT kept.list_id, kept.entry, kept.expires, kept.comment
FROM unnest($1::integer[], $2::text[]) AS given (list_id, entry)
JOIN list_entries AS kept ON kept.list_id = given.list_id AND kept.entry = given.entry
"""
# The oldest are looked at first, so that nothing else is read; what is not old enough stays.
_PURGE = """
WITH oldest AS (SELECT change FROM list_changes ORDER BY change LIMIT $1)
DELETE FROM list_changes USING oldest
WHERE list_changes.change = oldest.change AND changed < now() - make_interval(days => $2)
"""
# Locked in the order of all other writers, so that nobody waits in a circle.
_WRITE_HITS = """
WITH locked AS MATERIALIZED (
    SELECT list_id, entry, given.hits, given.last_hit
    FROM list_entries JOIN unnest($1::integer[], $2::text[], $3::bigint[], $4::text[])
         AS given (list_id, entry, hits, last_hit) USING (list_id, entry)
    ORDER BY list_id, entry FOR UPDATE OF list_entries
)
UPDATE list_entries AS kept
SET hits = kept.hits + locked.hits, last_hit = greatest(kept.last_hit, locked.last_hit)
FROM locked WHERE kept.list_id = locked.list_id AND kept.entry = locked.entry
"""


class Snapshot:
    """One state of all lists."""

    def __init__(self, connection: Connection, position: Position) -> None:
        self.position = position
        self._connection = connection

    async def lists(self) -> list[ListRow]:
        return [_list_row(row) for row in await self._connection.fetch(_LISTS)]

    async def copy(self, sink: Callable[[bytes], Awaitable[None]]) -> None:
        """Give the lines of all entries to the sink; see WholeCopy."""
        await self._connection.copy_from_query(_COPY, output=sink, format="csv", delimiter=DELIMITER, quote=QUOTE)

    async def changes_since(self, position: Position) -> AsyncIterator[list[ListChange]]:
        """Yield what became of the entries that a replica at that position has to look at, page by page."""
        transaction, change = "0", 0
        while True:
            rows = await self._connection.fetch(_CHANGES, position.snapshot, transaction, change, PAGE, PAGE_ENTRIES)
            if not rows:
                return
            touched: dict[int, set[str]] = {}
            for row in rows:
                entries = cast("Sequence[str]", row["entries"])
                touched.setdefault(cast("int", row["list_id"]), set()).update(entries)
            yield await self._look_at(touched)
            transaction, change = cast("str", rows[-1]["transaction"]), cast("int", rows[-1]["change"])

    async def _look_at(self, touched: dict[int, set[str]]) -> list[ListChange]:
        lists = {row.list_id: row for row in map(_list_row, await self._connection.fetch(_SOME_LISTS, [*touched]))}
        pairs = sorted((list_id, entry) for list_id in lists for entry in touched[list_id])
        present: dict[int, list[EntryRow]] = {}
        numbers, entries = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        for row in await self._connection.fetch(_PRESENT, numbers, entries) if pairs else ():
            entry = EntryRow(cast("str", row["entry"]), cast("str | None", row["expires"]), cast("str", row["comment"]))
            present.setdefault(cast("int", row["list_id"]), []).append(entry)
        changes = []
        for list_id, names in touched.items():
            found = present.get(list_id, [])
            absent = sorted(names - {each.entry for each in found})
            changes.append(ListChange(list_id, lists.get(list_id), found, absent))
        return changes


@asynccontextmanager
async def snapshot(database: Database) -> AsyncIterator[Snapshot]:
    """Open one state of all lists, which stands still for the whole block."""
    async with database.connection() as connection, scoped(connection, EVERYTHING, snapshot=True):
        head = await connection.fetchrow(_HEAD)
        assert head is not None
        position = Position(cast("str", head["source"]), cast("str", head["snapshot"]), cast("float", head["moment"]))
        yield Snapshot(connection, position)


def can_follow(known: Position, now: Position) -> bool:
    """Tell whether all that changed since a position is still on record, in the same history of the same database."""
    rewound = int(known.snapshot.partition(":")[0]) > int(now.snapshot.split(":")[1])
    aged = now.moment - known.moment > (KEPT_HOURS - 1) * 3_600
    return known.source == now.source and not rewound and not aged


async def purge_changes(database: Database) -> int:
    """Forget the changes that no replica will ask for and nobody can undo any more; return how many."""
    purged = 0
    while True:
        async with database.connection() as connection:
            done = await connection.execute(_PURGE, _PURGED, KEPT_DAYS)
        count = int(done.rpartition(" ")[2])
        purged += count
        if count < _PURGED:
            return purged


async def write_hits(database: Database, hits: Hits) -> Hits:
    """Add the hits to their entries; return those that could not be written because the database went away."""
    waiting = iter(sorted(hits.items()))
    while some := dict(islice(waiting, _HITS)):
        try:
            async with database.connection() as connection, scoped(connection, EVERYTHING):
                await connection.execute(
                    _WRITE_HITS, [key[0] for key in some], [key[1] for key in some],
                    [hit.count for hit in some.values()], [_moment(hit.last) for hit in some.values()],
                )  # fmt: skip
        except StorageUnavailable:
            return {**some, **dict(waiting)}
    return {}


def _list_row(row: Row) -> ListRow:
    return ListRow(
        cast("int", row["list_id"]),
        cast("UUID | None", row["tenant"]),
        cast("str", row["name"]),
        cast("int", row["entries"]),
    )


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
