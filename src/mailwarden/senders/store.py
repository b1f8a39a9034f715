"""Sender history in PostgreSQL: one row of counts for each contact of a tenant, under a digest."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import cast
from uuid import UUID

import asyncpg
import msgspec

from mailwarden.database.pool import Connection, Database, Row
from mailwarden.database.rows import read
from mailwarden.errors import StorageUnavailable
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.senders.model import (
    ContactCount,
    ContactRecord,
    ContactStats,
    Counting,
    DomainCount,
    DomainStats,
    SenderAnswer,
    SenderCounts,
)
from mailwarden.telemetry.logs import get_logger

MAX_MESSAGES = 1_000_000  # where a count stops
DELETE_BATCH = 5_000

_SALT = "SELECT salt FROM relationship_salt"
_STATS = """
SELECT pair, messages, days, $3::date - first_seen AS age, NULL::bigint AS good, NULL::bigint AS bad
FROM unnest($1::uuid[], $2::bytea[]) AS wanted (tenant, pair)
JOIN relationships USING (tenant, pair)
UNION ALL
SELECT message, 1, 1, $3::date - day, NULL, NULL FROM unnest($4::uuid[], $5::bytea[]) AS wanted (tenant, message)
JOIN thread_messages USING (tenant, message)
UNION ALL
SELECT domain, 0, days, $3::date - first_seen, good, bad FROM unnest($6::bytea[]) AS wanted (domain)
JOIN domain_memory USING (domain)
"""
_ADD_DOMAINS = """
INSERT INTO domain_memory AS stored (domain, good, bad, days, first_seen, last_seen)
SELECT domain, bit_or(good), bit_or(bad), 1, min(day), max(day)
FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::date[]) AS given (domain, good, bad, day)
GROUP BY domain ORDER BY domain
ON CONFLICT (domain) DO UPDATE SET
    good = stored.good | EXCLUDED.good,
    bad = stored.bad | EXCLUDED.bad,
    days = stored.days + (EXCLUDED.last_seen > stored.last_seen)::integer,
    last_seen = greatest(stored.last_seen, EXCLUDED.last_seen)
"""
# A number with one bit has none in common with its predecessor.
_DELETE_DOMAINS = """
DELETE FROM domain_memory WHERE domain IN (
    SELECT domain FROM domain_memory
    WHERE last_seen < $1 OR (last_seen < $2 AND (good | bad) & ((good | bad) - 1) = 0) LIMIT $3
)
"""
_ADD_MESSAGES = """
INSERT INTO thread_messages (tenant, message, day)
SELECT tenant, message, $3 FROM unnest($1::uuid[], $2::bytea[]) AS given (tenant, message)
ON CONFLICT (tenant, message) DO NOTHING
"""
_DELETE_MESSAGES = """
DELETE FROM thread_messages WHERE (tenant, message) IN (
    SELECT tenant, message FROM thread_messages WHERE day < $1 AND ($2::uuid[] IS NULL OR tenant = ANY($2)) LIMIT $3
)
"""
_ADD = """
INSERT INTO relationships AS stored (tenant, pair, messages, days, first_seen, last_seen)
SELECT tenant, pair, messages, 1, day, day
FROM unnest($1::uuid[], $2::bytea[], $3::integer[], $4::date[]) AS given (tenant, pair, messages, day)
ON CONFLICT (tenant, pair) DO UPDATE SET
    messages = least(stored.messages + EXCLUDED.messages, $5),
    days = stored.days + (EXCLUDED.last_seen > stored.last_seen)::integer,
    last_seen = greatest(stored.last_seen, EXCLUDED.last_seen)
"""
_SUBTRACT = """
UPDATE relationships SET messages = greatest(messages - 1, 0)
WHERE tenant = $1 AND pair = ANY ($2::bytea[])
"""
_REMOVE = """
DELETE FROM relationships WHERE tenant = $1 AND pair = ANY ($2::bytea[])
RETURNING pair AS contact, messages, days, first_seen, last_seen
"""
_RESTORE = """
INSERT INTO relationships AS stored (tenant, pair, messages, days, first_seen, last_seen)
SELECT $1, pair, messages, days, first_seen, last_seen
FROM unnest($2::bytea[], $3::integer[], $4::integer[], $5::date[], $6::date[])
    AS given (pair, messages, days, first_seen, last_seen)
ON CONFLICT (tenant, pair) DO UPDATE SET
    messages = least(stored.messages + EXCLUDED.messages, $7),
    days = stored.days + EXCLUDED.days,
    first_seen = least(stored.first_seen, EXCLUDED.first_seen),
    last_seen = greatest(stored.last_seen, EXCLUDED.last_seen)
"""
_DELETE_UNSEEN = """
DELETE FROM relationships WHERE (tenant, pair) IN (
    SELECT tenant, pair FROM relationships WHERE last_seen < $1 AND ($2::uuid[] IS NULL OR tenant = ANY($2)) LIMIT $3
)
"""


# Errors about the data of a row; all others are about the server or the schema.
BAD_DATA = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,  # such as a row that is too large for an index
)

_log = get_logger("history.postgresql")


async def add_new_counts(
    connection: Connection, scope: Scope, new: Sequence[FinishedRequest], counting: Counting
) -> tuple[SenderCounts, ...]:
    """Add the counts of new rows; counts that cannot be stored cost no row."""
    try:
        counts = counting(new)
        async with connection.transaction():
            await add_counts(connection, scope, counts)
    except BAD_DATA as error:
        _log.warning("sender_history_not_updated", reason=str(error), messages=len(new))
        return ()
    return (counts,)


async def add_counts(connection: Connection, scope: Scope, counts: SenderCounts) -> None:
    """Add all counts in the caller's transaction; every guard writes the tables in this order."""
    await add_contacts(connection, scope, counts.contacts)
    await add_messages(connection, scope, counts.messages, counts.day)
    await add_domains(connection, scope, counts.domains)


async def add_contacts(connection: Connection, scope: Scope, counts: Sequence[ContactCount]) -> None:
    rows = sorted(count for count in counts if scope.allows(count.tenant))
    if rows:
        columns = (
            [row.tenant for row in rows],
            [row.contact for row in rows],
            [row.messages for row in rows],
            [row.day for row in rows],
        )
        await connection.execute(_ADD, *columns, MAX_MESSAGES)


async def add_messages(connection: Connection, scope: Scope, messages: Sequence[tuple[UUID, bytes]], day: date) -> None:
    columns = _columns(scope, sorted(set(messages)))
    if columns[0]:
        await connection.execute(_ADD_MESSAGES, *columns, day)


async def add_domains(connection: Connection, scope: Scope, counts: Sequence[DomainCount]) -> None:
    if scope.tenants is None and counts:
        rows = sorted(counts)
        columns = (
            [row.domain for row in rows],
            [row.good for row in rows],
            [row.bad for row in rows],
            [row.day for row in rows],
        )
        await connection.execute(_ADD_DOMAINS, *columns)


class PostgresqlSenderStore:
    """Writes its rows in one order everywhere, so that two guards cannot deadlock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def salt(self, scope: Scope) -> bytes:
        try:
            async with self._database.connection() as connection:
                salt = await connection.fetchval(_SALT)
        except asyncpg.PostgresError as error:
            # Such as a missing permission: rows of history need the salt, and must wait.
            reason = f"The database does not return the salt of senders ({type(error).__name__}: {error})."
            raise StorageUnavailable(reason, retry_after=1) from error
        return salt if isinstance(salt, bytes) else b""

    async def stats(
        self, scope: Scope, contacts: Sequence[tuple[UUID, bytes]], messages: Sequence[tuple[UUID, bytes]] = ()
    ) -> Mapping[bytes, ContactStats]:
        return (await self.lookup(scope, contacts, messages, ())).contacts

    async def lookup(
        self,
        scope: Scope,
        contacts: Sequence[tuple[UUID, bytes]],
        messages: Sequence[tuple[UUID, bytes]],
        domains: Sequence[bytes],
    ) -> SenderAnswer:
        of_contacts, of_messages = _columns(scope, contacts), _columns(scope, messages)
        of_domains = list(domains) if scope.tenants is None else []
        if not of_contacts[0] and not of_messages[0] and not of_domains:
            return SenderAnswer()
        async with self._database.connection() as connection:
            rows = await connection.fetch(_STATS, *of_contacts, datetime.now(UTC).date(), *of_messages, of_domains)
        return SenderAnswer(
            {read(row, "pair", bytes): _stats(row) for row in rows if row["good"] is None},
            {read(row, "pair", bytes): _domain_stats(row) for row in rows if row["good"] is not None},
        )

    async def add_domains(self, scope: Scope, counts: Sequence[DomainCount]) -> None:
        async with self._database.connection() as connection:
            await add_domains(connection, scope, counts)

    async def add(self, scope: Scope, counts: Sequence[ContactCount]) -> None:
        async with self._database.connection() as connection:
            await add_contacts(connection, scope, counts)

    async def add_messages(self, scope: Scope, messages: Sequence[tuple[UUID, bytes]], day: date) -> None:
        async with self._database.connection() as connection:
            await add_messages(connection, scope, messages, day)

    async def subtract(self, scope: Scope, tenant: UUID, contacts: Sequence[bytes]) -> None:
        if scope.allows(tenant):
            async with self._database.connection() as connection:
                await connection.execute(_SUBTRACT, tenant, sorted(contacts))

    async def remove(self, scope: Scope, tenant: UUID, contacts: Sequence[bytes]) -> Sequence[ContactRecord]:
        if not scope.allows(tenant):
            return []
        async with self._database.connection() as connection:
            rows = await connection.fetch(_REMOVE, tenant, sorted(contacts))
        return [msgspec.convert(dict(cast("Mapping[str, object]", row)), ContactRecord) for row in rows]

    async def restore(self, scope: Scope, tenant: UUID, records: Sequence[ContactRecord]) -> None:
        if not scope.allows(tenant) or not records:
            return
        rows = sorted(records, key=lambda each: each.contact)
        columns = (
            [row.contact for row in rows],
            [row.messages for row in rows],
            [row.days for row in rows],
            [row.first_seen for row in rows],
            [row.last_seen for row in rows],
        )
        async with self._database.connection() as connection:
            await connection.execute(_RESTORE, tenant, *columns, MAX_MESSAGES)

    async def delete_unseen(self, scope: Scope, before: date) -> int:
        return await self._delete(_DELETE_UNSEEN, scope, before)

    async def delete_messages(self, scope: Scope, before: date) -> int:
        return await self._delete(_DELETE_MESSAGES, scope, before)

    async def delete_domains(self, scope: Scope, before: date, before_of_one: date) -> int:
        if scope.tenants is not None:
            return 0
        return await self._delete_batches(_DELETE_DOMAINS, before, before_of_one)

    async def _delete(self, statement: str, scope: Scope, before: date) -> int:
        tenants = None if scope.tenants is None else list(scope.tenants)
        return await self._delete_batches(statement, before, tenants)

    async def _delete_batches(self, statement: str, *values: object) -> int:
        deleted = 0
        async with self._database.connection() as connection:
            while True:
                status = await connection.execute(statement, *values, DELETE_BATCH)
                batch = int(status.rpartition(" ")[2])
                deleted += batch
                if batch < DELETE_BATCH:
                    return deleted


def _columns(scope: Scope, rows: Sequence[tuple[UUID, bytes]]) -> tuple[list[UUID], list[bytes]]:
    """Return the rows of the scope by column."""
    allowed = [(tenant, digest) for tenant, digest in rows if scope.allows(tenant)]
    return [tenant for tenant, _ in allowed], [digest for _, digest in allowed]


def _stats(row: Row) -> ContactStats:
    return ContactStats(*(cast("int", row[name]) for name in ("messages", "days", "age")))


def _domain_stats(row: Row) -> DomainStats:
    good, bad, days, age = (cast("int", row[name]) for name in ("good", "bad", "days", "age"))
    return DomainStats(good.bit_count(), bad.bit_count(), days, age)
