"""The part of a saved batch that needs a transaction, in PostgreSQL: which rows are new, their events and counts.

ClickHouse has no transaction over two stores. The ledger has a key for each row of the last days, written with its
event and its counts; the row itself follows. A batch that is sent again finds its keys here and counts nothing twice.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import asyncpg
from msgspec import Struct

from mailwarden.database.clock import read_now
from mailwarden.database.pool import Connection, Database, confirm_earlier
from mailwarden.database.rows import read
from mailwarden.errors import StorageUnavailable
from mailwarden.history.clickhouse.rows import EncodedRow
from mailwarden.history.postgresql.statistics import mark_late
from mailwarden.history.store import RejectedRequest
from mailwarden.model.ggrid import moment_of
from mailwarden.model.scope import Scope
from mailwarden.senders.model import Counting, SenderCounts
from mailwarden.senders.store import BAD_DATA, add_new_counts
from mailwarden.telemetry.logs import get_logger

KEPT = timedelta(days=3)  # longer than a batch stays in doubt; each attempt renews its keys
DELETE_BATCH = 10_000

_ADD = """
INSERT INTO history_ledger (ggrid, tenant, added)
SELECT ggrid, tenant, $3 FROM unnest($1::uuid[], $2::uuid[]) AS given (ggrid, tenant)
ORDER BY ggrid, tenant
ON CONFLICT (ggrid, tenant) DO NOTHING
RETURNING ggrid, tenant
"""
_RENEW = """
UPDATE history_ledger SET added = $3
FROM unnest($1::uuid[], $2::uuid[]) AS given (ggrid, tenant)
WHERE history_ledger.ggrid = given.ggrid AND history_ledger.tenant = given.tenant AND added < $3
"""
_ANNOUNCE = """
INSERT INTO events (id, type, tenant, subject, data)
SELECT event, 'message.scanned', tenant, ggrid::text, judged
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[]) AS judgements (ggrid, tenant, event, judged)
"""
_DELETE = """
DELETE FROM history_ledger WHERE ctid = ANY (ARRAY(SELECT ctid FROM history_ledger WHERE added < $1 LIMIT $2))
"""

_log = get_logger("history.clickhouse")


class Noted(Struct, frozen=True):
    """The counts that were added for new rows, and the rows that PostgreSQL refused."""

    counts: tuple[SenderCounts, ...] = ()
    rejected: tuple[RejectedRequest, ...] = ()

    def __add__(self, other: "Noted") -> "Noted":
        return Noted(self.counts + other.counts, self.rejected + other.rejected)


class AnnouncedRow(Struct, frozen=True):
    """A row and its event, if it gets one."""

    row: EncodedRow
    event: tuple[UUID, str] | None


class Ledger:
    """Notes rows before ClickHouse stores them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def note(self, scope: Scope, rows: Sequence[AnnouncedRow], counting: Counting | None) -> Noted:
        """Note rows that ClickHouse does not have; write the events and the counts of those that are new."""
        try:
            async with self._database.connection() as connection:
                return await self._note(connection, scope, rows, counting)
        except asyncpg.PostgresError as error:
            raise _not_accepted(error) from error

    async def mark_late(self, rows: Sequence[EncodedRow]) -> None:
        """Have the period of stored rows counted again if it was counted before."""
        oldest = min(moment for row in rows if (moment := moment_of(row.request.ggrid)) is not None)
        try:
            async with self._database.connection() as connection:
                await mark_late(connection, oldest)
        except asyncpg.PostgresError as error:
            raise _not_accepted(error) from error

    async def delete_old(self) -> int:
        """Delete the keys of batches that are no longer in doubt, in small transactions; return their number."""
        async with self._database.connection() as connection:
            before, deleted = (await read_now(connection)).date() - KEPT, 0
        while True:
            async with self._database.connection() as connection:
                status = await connection.execute(_DELETE, before, DELETE_BATCH)
            batch = int(status.rpartition(" ")[2])
            deleted += batch
            if batch < DELETE_BATCH:
                return deleted

    async def _note(
        self, connection: Connection, scope: Scope, rows: Sequence[AnnouncedRow], counting: Counting | None
    ) -> Noted:
        """Note the rows in one transaction; if their data is refused, in halves down to one row."""
        if not rows:
            return Noted()
        try:
            async with connection.transaction():
                new = await _add(connection, rows)
                await _announce(connection, [each for each in rows if each.row.key in new])
                requests = [each.row.request for each in rows if each.row.key in new]
                counts = await add_new_counts(connection, scope, requests, counting) if counting and requests else ()
        except BAD_DATA as error:
            if len(rows) == 1:
                return Noted(rejected=(RejectedRequest(rows[0].row.request, f"{type(error).__name__}: {error}"),))
        else:
            return Noted(counts)
        middle = len(rows) // 2
        first = await self._note(connection, scope, rows[:middle], counting)
        return first + await self._note(connection, scope, rows[middle:], counting)


async def _add(connection: Connection, rows: Sequence[AnnouncedRow]) -> set[tuple[UUID, UUID]]:
    """Add the keys of the rows and return those that are new."""
    columns = [each.row.request.ggrid for each in rows], [each.row.request.tenant for each in rows], _today()
    found = await connection.fetch(_ADD, *columns)
    new = {(read(row, "ggrid", UUID), read(row, "tenant", UUID)) for row in found}
    if len(new) < len(rows):
        await connection.execute(_RENEW, *columns)
        await confirm_earlier(connection)
    return new


async def _announce(connection: Connection, rows: Sequence[AnnouncedRow]) -> None:
    events = [(*each.row.key, *each.event) for each in rows if each.event is not None]
    if events:
        await connection.execute(_ANNOUNCE, *(list(column) for column in zip(*events, strict=True)))


def _not_accepted(error: asyncpg.PostgresError) -> StorageUnavailable:
    reason = f"The database does not accept history ({type(error).__name__}: {error})."
    return StorageUnavailable(reason, retry_after=1)


def _today() -> date:
    return datetime.now(UTC).date()
