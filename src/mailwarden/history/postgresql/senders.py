"""Sender history in PostgreSQL: one row of counts for each contact of a tenant, under a digest."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import cast
from uuid import UUID

import msgspec

from mailwarden.database.pool import Database, Row
from mailwarden.history.store import ContactCount, ContactRecord, ContactStats
from mailwarden.model.scope import Scope

MAX_MESSAGES = 1_000_000  # where a count stops
DELETE_BATCH = 5_000

_SALT = "SELECT salt FROM relationship_salt"
_STATS = """
SELECT pair, messages, days, $3::date - first_seen AS age FROM unnest($1::uuid[], $2::bytea[]) AS wanted (tenant, pair)
JOIN relationships USING (tenant, pair)
UNION ALL
SELECT message, 1, 1, $3::date - day FROM unnest($4::uuid[], $5::bytea[]) AS wanted (tenant, message)
JOIN thread_messages USING (tenant, message)
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


class PostgresqlSenderStore:
    """Writes its rows in one order everywhere, so that two guards cannot deadlock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def salt(self, scope: Scope) -> bytes:
        async with self._database.connection() as connection:
            salt = await connection.fetchval(_SALT)
        return salt if isinstance(salt, bytes) else b""

    async def stats(
        self, scope: Scope, contacts: Sequence[tuple[UUID, bytes]], messages: Sequence[tuple[UUID, bytes]] = ()
    ) -> Mapping[bytes, ContactStats]:
        of_contacts, of_messages = _columns(scope, contacts), _columns(scope, messages)
        if not of_contacts[0] and not of_messages[0]:
            return {}
        async with self._database.connection() as connection:
            rows = await connection.fetch(_STATS, *of_contacts, datetime.now(UTC).date(), *of_messages)
        return {cast("bytes", row["pair"]): _stats(row) for row in rows}

    async def add(self, scope: Scope, counts: Sequence[ContactCount]) -> None:
        rows = sorted(each for each in counts if scope.allows(each.tenant))
        if not rows:
            return
        columns = (
            [each.tenant for each in rows],
            [each.contact for each in rows],
            [each.messages for each in rows],
            [each.day for each in rows],
        )
        async with self._database.connection() as connection:
            await connection.execute(_ADD, *columns, MAX_MESSAGES)

    async def add_messages(self, scope: Scope, messages: Sequence[tuple[UUID, bytes]], day: date) -> None:
        columns = _columns(scope, sorted(set(messages)))
        if columns[0]:
            async with self._database.connection() as connection:
                await connection.execute(_ADD_MESSAGES, *columns, day)

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
            [each.contact for each in rows],
            [each.messages for each in rows],
            [each.days for each in rows],
            [each.first_seen for each in rows],
            [each.last_seen for each in rows],
        )
        async with self._database.connection() as connection:
            await connection.execute(_RESTORE, tenant, *columns, MAX_MESSAGES)

    async def delete_unseen(self, scope: Scope, before: date) -> int:
        return await self._delete(_DELETE_UNSEEN, scope, before)

    async def delete_messages(self, scope: Scope, before: date) -> int:
        return await self._delete(_DELETE_MESSAGES, scope, before)

    async def _delete(self, statement: str, scope: Scope, before: date) -> int:
        tenants = None if scope.tenants is None else list(scope.tenants)
        deleted = 0
        async with self._database.connection() as connection:
            while True:
                status = await connection.execute(statement, before, tenants, DELETE_BATCH)
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
