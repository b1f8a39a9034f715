"""The rows of history in PostgreSQL for `mailwarden history migrate`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import cast
from uuid import UUID

from mailwarden.database.pool import Database
from mailwarden.history.postgresql.partitions import create_old_day, existing_days
from mailwarden.history.postgresql.records import cursor_in, fetch_records
from mailwarden.history.postgresql.statistics import mark_late
from mailwarden.history.postgresql.store import PostgresqlHistoryStore
from mailwarden.history.store import Cursor, HistoryRow, RejectedRequest, StoredRecord
from mailwarden.model.scope import Scope

_COUNT = "SELECT count(*) FROM history WHERE day = $1"
_KEYS = """
SELECT ggrid, tenant FROM history WHERE day = $1 AND (ggrid, tenant) > ($2, $3) ORDER BY ggrid, tenant LIMIT $4
"""
_STORED = "SELECT ggrid, tenant FROM history WHERE day = $1 AND ggrid = ANY($2::uuid[])"
_LOWEST = UUID(int=0)


class PostgresqlTable:
    """The table of history, partition by partition."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._store = PostgresqlHistoryStore(database)

    async def days(self) -> Sequence[date]:
        async with self._database.connection() as connection:
            return sorted(await existing_days(connection), reverse=True)

    async def count(self, day: date) -> int:
        async with self._database.connection() as connection:
            return cast("int", await connection.fetchval(_COUNT, day))

    async def keys(self, day: date, size: int) -> AsyncIterator[Sequence[Cursor]]:
        last = Cursor(_LOWEST, _LOWEST)
        while True:
            async with self._database.connection() as connection:
                rows = await connection.fetch(_KEYS, day, last.ggrid, last.tenant, size)
            keys = [cursor_in(row) for row in rows]
            if keys:
                yield keys
            if len(keys) < size:
                return
            last = keys[-1]

    async def stored(self, day: date, keys: Sequence[Cursor]) -> set[Cursor]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_STORED, day, sorted({key.ggrid for key in keys}))
        return {cursor_in(row) for row in rows}

    async def records(self, day: date, keys: Sequence[Cursor]) -> Mapping[Cursor, StoredRecord]:
        async with self._database.connection() as connection:
            return await fetch_records(connection, Scope.deployment(), keys)

    async def add(self, day: date, rows: Sequence[HistoryRow]) -> tuple[RejectedRequest, ...]:
        async with self._database.connection() as connection:
            await create_old_day(connection, day)
        return (await self._store.save_rows(Scope.deployment(), rows)).rejected

    async def count_again(self, since: date) -> None:
        """Have the figures of the dashboard counted again from this day on."""
        async with self._database.connection() as connection:
            await mark_late(connection, datetime(since.year, since.month, since.day, tzinfo=UTC))
