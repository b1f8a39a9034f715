"""The history of a tenant that moves, where a cell has its rows in ClickHouse: rows are copied by their keys.

From the switch on the old cell stores late rows of the tenant in PostgreSQL (history/clickhouse/store.py). So its rows
in ClickHouse stay as they are while they are copied, verified and deleted. A row in PostgreSQL is deleted by its key,
once the other cell has it.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import date
from typing import cast
from uuid import UUID

import asyncpg
from msgspec import Struct

from mailwarden.cells.places import LocalPlace, lock_place
from mailwarden.cells.tables import PREPARE
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.schema import check_replicas, check_table
from mailwarden.history.clickhouse.table import ClickhouseTable, wait_for_deletion
from mailwarden.history.migration import PAGE, Copied, HistoryTable, check_day, copy_day
from mailwarden.history.postgresql.table import PostgresqlTable
from mailwarden.history.records import decode
from mailwarden.history.store import Cursor

COMMAND_SECONDS = 300.0  # of a statement of PostgreSQL
REPLICAS_SECONDS = 60.0  # until every replica has all rows
IN_FLIGHT_SECONDS = 60.0  # after the switch: longer than a guard takes to write a batch
POLL = 1.0
_CHANGED = "SELECT extract(epoch FROM clock_timestamp() - changed)::float8 FROM tenant_places WHERE tenant = $1"
_DELETE = "DELETE FROM history WHERE day = $1 AND tenant = $2 AND ggrid = ANY ($3::uuid[])"

Report = Callable[[str], None]


class HistoryPlace(Struct, frozen=True):
    """Where a cell has its history; `clickhouse` is None if all of it is in PostgreSQL."""

    url: str
    clickhouse: Clickhouse | None = None


class _Tables(Struct, frozen=True):
    """The tables of both cells that may have rows of the tenant."""

    old: PostgresqlTable
    old_columns: ClickhouseTable | None
    new: PostgresqlTable
    new_columns: ClickhouseTable | None

    @property
    def target(self) -> HistoryTable:
        return self.new_columns or self.new

    @property
    def sources(self) -> Sequence[HistoryTable]:
        """Return the tables of the old cell; late rows are in PostgreSQL."""
        return [each for each in (self.old_columns, self.old) if each is not None]


class MovedHistory:
    """The rows of one tenant in two cells."""

    def __init__(self, source: HistoryPlace, target: HistoryPlace, tenant: UUID, report: Report) -> None:
        self._source = source
        self._target = target
        self._tenant = tenant
        self._report = report

    @property
    def is_by_keys(self) -> bool:
        """Return whether rows must be copied by keys; two PostgreSQL copy whole days faster."""
        return self._source.clickhouse is not None or self._target.clickhouse is not None

    async def check(self) -> None:
        """Raise if a store does not answer, or both cells use one."""
        stores = [each.clickhouse for each in (self._source, self._target) if each.clickhouse]
        for store in stores:
            await check_table(store)
        if len(stores) == 2 and is_same(*stores):
            raise CommandError(
                f"Both cells have their history in the database {stores[0].target.database} of one ClickHouse: the end "
                "of the move would delete the tenant's rows. Give each cell a database of its own."
            )

    async def copy(self) -> int:
        """Copy the rows that the new cell lacks, the newest day of each table first; return the rows of the old cell.

        The new cell may have late rows in PostgreSQL, from the time before the tenant came back.
        """
        async with self._opened() as tables:
            copied = await self._copy(tables, tables.sources)
            if tables.new_columns is not None:
                await self._copy(tables, [tables.new])
            return copied.rows

    async def delete(self, a: asyncpg.Connection, moved: LocalPlace) -> int:
        """Copy the rest, and delete all rows of the old cell once the new one has them; return the rows read."""
        async with self._opened() as tables:
            if tables.old_columns is not None:
                await self._wait_for_batches(a)
            copied = await self._copy(tables, tables.sources)
            if copied.failed:
                raise CommandError(
                    f"{copied.failed:,} rows of history cannot be copied, such as {copied.reason}. Nothing was deleted."
                )
            await self._verify(tables)
            await self._delete_from_postgresql(a, moved, tables)
            if tables.old_columns is not None:
                await self._delete_from_clickhouse(a, moved, tables.old_columns, tables.target)
            return copied.rows

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[_Tables]:
        async with AsyncExitStack() as stack:
            tables: list[tuple[PostgresqlTable, ClickhouseTable | None]] = []
            for place in (self._source, self._target):
                database = Database(place.url, 1, command_timeout=COMMAND_SECONDS, pooled=True)
                stack.push_async_callback(database.close)
                columns = ClickhouseTable(place.clickhouse, self._tenant) if place.clickhouse else None
                tables.append((PostgresqlTable(database, self._tenant), columns))
            yield _Tables(*tables[0], *tables[1])

    async def _copy(self, tables: _Tables, sources: Sequence[HistoryTable]) -> Copied:
        await self._wait_for_replicas(self._source)
        if self._target.clickhouse and not await wait_for_deletion(self._target.clickhouse):
            raise CommandError(
                "ClickHouse of the other cell still deletes rows, which may be those of this tenant from an earlier "
                "move. Run the command again later: it continues."
            )
        total, oldest = Copied(), date.max
        for source in sources:
            for day in await source.days():
                copied = await copy_day(source, tables.target, day, lambda _: None)
                total += copied
                oldest = min(oldest, day) if copied.written else oldest
                if copied.rows:
                    self._report(f"history of {day}: {copied.rows:,} messages, {copied.written:,} copied now")
        await self._wait_for_replicas(self._source)  # one that lacked rows meanwhile has not answered for them
        if oldest < date.max:
            await tables.new.count_again(oldest)
        if total.failed:
            self._report(f"history: {total.failed:,} rows cannot be copied, such as {total.reason}")
        return total

    async def _verify(self, tables: _Tables) -> None:
        """Raise unless the new cell has every row, on each replica.

        A replica that lost Keeper during an insert shows its rows for some minutes and then discards them.
        """
        await self._wait_for_replicas(self._target)
        async with self._copies(tables) as copies:
            for source, target in itertools.product(tables.sources, copies):
                for day in await source.days():
                    missing = sum(each.missing for each in await check_day(source, target, day, lambda _: None))
                    if missing:
                        raise CommandError(
                            f"The other cell lacks {missing:,} rows of history of {day}, or one of its replicas does. "
                            "Nothing was deleted. Run the command again in some minutes."
                        )

    @asynccontextmanager
    async def _copies(self, tables: _Tables) -> AsyncIterator[Sequence[HistoryTable]]:
        """Open the table that has all rows in the new cell, on each replica."""
        clickhouse = self._target.clickhouse
        if clickhouse is None:
            yield [tables.target]
            return
        async with AsyncExitStack() as stack:
            replicas = [clickhouse.of_replica(url) for url in clickhouse.target.urls]
            for replica in replicas:
                stack.push_async_callback(replica.close)
            yield [ClickhouseTable(replica, self._tenant) for replica in replicas]

    async def _delete_from_postgresql(self, a: asyncpg.Connection, moved: LocalPlace, tables: _Tables) -> None:
        for day in await tables.old.days():
            async for keys in tables.old.keys(day, PAGE):
                stored = await tables.target.stored(day, keys)
                async with self._while_moved(a, moved):
                    await a.execute(_DELETE, day, self._tenant, [key.ggrid for key in keys if key in stored])

    async def _delete_from_clickhouse(
        self, a: asyncpg.Connection, moved: LocalPlace, source: ClickhouseTable, target: HistoryTable
    ) -> None:
        found = await _first(source)
        if found is None:
            return
        async with self._while_moved(a, moved):
            await self._check_apart(source, target, *found)
            await source.delete_tenant(self._tenant)
        if not await self._is_deleted():
            self._report("history: ClickHouse still deletes the rows of the tenant")

    async def _check_apart(self, source: ClickhouseTable, target: HistoryTable, day: date, key: Cursor) -> None:
        """Delete one row, and raise if it is gone in the other cell, too: then both have one table."""
        records = await source.records(day, [key])
        await source.delete_row(day, key)
        if not await self._is_deleted():
            raise CommandError("ClickHouse of this cell takes too long to delete a row. Run the command again later.")
        if key in await target.stored(day, [key]):
            return
        await target.add(day, [decode(record) for record in records.values()])
        raise CommandError(
            "A row that was deleted in the history of this cell was gone in the other cell, too, and was written "
            "again: both cells use one table of ClickHouse. Nothing else was deleted. Give each cell a database of "
            "its own."
        )

    async def _is_deleted(self) -> bool:
        return self._source.clickhouse is None or await wait_for_deletion(self._source.clickhouse)

    @asynccontextmanager
    async def _while_moved(self, a: asyncpg.Connection, moved: LocalPlace) -> AsyncIterator[None]:
        """Keep the tenant from coming back while its rows are deleted."""
        async with a.transaction():
            await a.execute(PREPARE, str(self._tenant))
            await lock_place(a, self._tenant, moved)
            yield

    async def _wait_for_batches(self, a: asyncpg.Connection) -> None:
        """Wait until guards that did not know of the switch have written their batches to ClickHouse."""
        age = cast("float", await a.fetchval(_CHANGED, self._tenant))
        if age < IN_FLIGHT_SECONDS:
            self._report(f"waiting for {IN_FLIGHT_SECONDS - age:.0f} s: guards may still write rows to ClickHouse")
            await asyncio.sleep(IN_FLIGHT_SECONDS - age)

    async def _wait_for_replicas(self, place: HistoryPlace) -> None:
        """Wait until every replica of a cell has all rows, or raise."""
        end = time.monotonic() + REPLICAS_SECONDS
        while place.clickhouse is not None:
            try:
                await check_replicas(place.clickhouse)
                break
            except CommandError:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(POLL)


def is_same(one: Clickhouse, other: Clickhouse) -> bool:
    """Return whether two cells name the same database of a server."""
    urls = {url.rstrip("/") for url in one.target.urls} & {url.rstrip("/") for url in other.target.urls}
    return bool(urls) and one.target.database == other.target.database


async def _first(table: HistoryTable) -> tuple[date, Cursor] | None:
    """Return the day and the key of a row, if there is one."""
    for day in await table.days():
        async for keys in table.keys(day, 1):
            return day, keys[0]
    return None
