"""The history of a tenant that moves, where a cell has its rows in ClickHouse: rows are copied by their keys.

From the switch on the old cell stores late rows of the tenant in PostgreSQL (history/clickhouse/store.py). So its rows
in ClickHouse stay as they are while they are copied, verified and deleted. A row in PostgreSQL is deleted by its key,
once the other cell has it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import cast
from uuid import UUID, uuid4

import asyncpg
from msgspec import Struct

from mailwarden.cells.places import LocalPlace, connect, lock_place
from mailwarden.cells.tables import PREPARE
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.schema import check_replicas, check_table
from mailwarden.history.clickhouse.table import ClickhouseTable, knows_deletion, wait_for_deletion
from mailwarden.history.migration import PAGE, Copied, HistoryTable, check_day, copy_day, through_outages
from mailwarden.history.postgresql.table import PostgresqlTable

COMMAND_SECONDS = 300.0  # of a statement of PostgreSQL
REPLICAS_SECONDS = 60.0  # until every replica has all rows
IN_FLIGHT_SECONDS = 60.0  # after the switch: longer than an insert into ClickHouse
SHARED_SECONDS = 5.0  # until a replica knows a deletion that was begun on another one
POLL = 1.0
_AGE = "SELECT extract(epoch FROM clock_timestamp() - changed)::float8 FROM tenant_places WHERE tenant = $1"
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
        """Raise if a store does not answer, or both cells use one table: the end of a move would delete its rows.

        A deletion that finds no row is in the list of the table, and of its replicas; two names of a server would not
        be seen by comparing addresses.
        """
        own, other = self._source.clickhouse, self._target.clickhouse
        for store in (own, other):
            if store is not None:
                await check_table(store)
        if own is None or other is None or own.target.database != other.target.database:
            return
        nobody = uuid4()
        await ClickhouseTable(own).delete_tenant(nobody)
        end = time.monotonic() + SHARED_SECONDS
        async with other.replicas() as replicas:
            while True:
                if any([await knows_deletion(replica, nobody) for replica in replicas]):
                    raise CommandError(
                        f"Both cells have their history in one table of ClickHouse, in the database "
                        f"{own.target.database}: the end of the move would delete the tenant's rows. Nothing was "
                        "changed. Give each cell a database of its own."
                    )
                if time.monotonic() > end:
                    return
                await asyncio.sleep(POLL)

    async def copy(self) -> int:
        """Copy the rows that the new cell lacks, the newest day of each table first; return the rows of the old cell.

        The new cell may have late rows in PostgreSQL, from the time before the tenant came back.
        """
        async with self._opened() as tables:
            return (await self._copy_all(tables)).rows

    async def delete(self, moved: LocalPlace, check_alone: Callable[[], Awaitable[None]]) -> int:
        """Copy the rest, and delete all rows of the old cell once the new one has them; return the rows read."""
        await self.check()
        await self._wait_for_earlier_move(self._source, "this cell")
        async with self._opened() as tables:
            await self._wait_for_inserts()
            copied = await self._copy_all(tables)
            if copied.failed:
                raise CommandError(
                    f"{copied.failed:,} rows of history cannot be copied, such as {copied.reason}. Nothing was deleted."
                )
            async with self._copies(tables) as copies:
                verified = await self._verify(tables.old_columns, copies) if tables.old_columns else 0
                await check_alone()
                kept = await self._delete_from_postgresql(moved, tables.old, copies)
            if tables.old_columns and verified:
                await self._delete_from_clickhouse(moved, tables.old_columns, verified)
            if kept:
                raise CommandError(
                    f"PostgreSQL of this cell keeps {kept:,} rows of history: they came meanwhile, or a replica of the "
                    "other cell lacks them. Run the command again in some minutes."
                )
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

    @asynccontextmanager
    async def _copies(self, tables: _Tables) -> AsyncIterator[Sequence[HistoryTable]]:
        """Open the table that has all rows in the new cell, on each replica."""
        if self._target.clickhouse is None:
            yield [tables.target]
            return
        await self._wait_for_replicas(self._target)
        async with self._target.clickhouse.replicas() as replicas:
            yield [ClickhouseTable(replica, self._tenant) for replica in replicas]

    async def _copy_all(self, tables: _Tables) -> Copied:
        """Copy the rows of both cells that the target lacks; return the numbers of the old cell."""
        await self._wait_for_earlier_move(self._target, "the other cell")
        copied = await self._copy(tables, tables.sources)
        if tables.new_columns is not None:
            await self._copy(tables, [tables.new])
        return copied

    async def _copy(self, tables: _Tables, sources: Sequence[HistoryTable]) -> Copied:
        await self._wait_for_replicas(self._source)
        total = Copied()
        for source in sources:
            for day in await source.days():
                copied = await through_outages(partial(copy_day, source, tables.target, day, lambda _: None))
                total += copied
                if copied.rows:
                    await tables.new.count_again(day)
                    self._report(f"history of {day}: {copied.rows:,} messages, {copied.written:,} copied now")
        await self._wait_for_replicas(self._source)  # one that lacked rows meanwhile has not answered for them
        if total.failed:
            self._report(f"history: {total.failed:,} rows cannot be copied, such as {total.reason}")
        return total

    async def _verify(self, source: ClickhouseTable, copies: Sequence[HistoryTable]) -> int:
        """Return the number of rows in ClickHouse of the old cell; raise unless each replica of the new one has them.

        A replica that lost Keeper during an insert shows its rows for some minutes and then discards them.
        """
        verified = 0
        for day in await source.days():
            for target in copies:
                checks = await through_outages(partial(check_day, source, target, day, lambda _: None))
                if missing := sum(each.missing for each in checks):
                    raise CommandError(
                        f"The other cell lacks {missing:,} rows of history of {day}, or one of its replicas does. "
                        "Nothing was deleted. Run the command again in some minutes."
                    )
            verified += sum(each.rows for each in checks)
        return verified

    async def _delete_from_postgresql(
        self, moved: LocalPlace, source: PostgresqlTable, copies: Sequence[HistoryTable]
    ) -> int:
        """Delete the rows that each replica of the new cell has; return how many stay."""
        kept = 0
        for day in await source.days():
            async for keys in source.keys(day, PAGE):
                # A message to two tenants has two rows of one ggrid: another tenant's row is no copy.
                stored = set(keys).intersection(*[await target.stored(day, keys) for target in copies])
                async with self._while_moved(moved) as connection:
                    await connection.execute(_DELETE, day, self._tenant, sorted(key.ggrid for key in stored))
                kept += len(keys) - len(stored)
        return kept

    async def _delete_from_clickhouse(self, moved: LocalPlace, source: ClickhouseTable, verified: int) -> None:
        """Delete the rows if they are as many as were verified."""
        async with self._while_moved(moved):
            found = sum([await source.count(day) for day in await source.days()])
            if found != verified:
                raise CommandError(
                    f"ClickHouse of this cell has {found:,} rows of the tenant, and {verified:,} of them are in the "
                    "other cell: a guard wrote meanwhile. Nothing was deleted there; run the command again."
                )
            await source.delete_tenant(self._tenant)
        if not await self._are_deleted(self._source):
            self._report("history: ClickHouse goes on to delete the rows of the tenant")

    @asynccontextmanager
    async def _while_moved(self, moved: LocalPlace) -> AsyncIterator[asyncpg.Connection]:
        """Keep the tenant from coming back while its rows are deleted."""
        async with connect(self._source.url) as connection, connection.transaction():
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            await connection.execute(PREPARE, str(self._tenant))
            await lock_place(connection, self._tenant, moved)
            yield connection

    async def _wait_for_inserts(self) -> None:
        """Wait until guards that did not know of the switch have written their batches to ClickHouse."""
        if self._source.clickhouse is None:
            return
        async with connect(self._source.url) as connection:
            age = cast("float", await connection.fetchval(_AGE, self._tenant))
        if age < IN_FLIGHT_SECONDS:
            self._report(f"waiting for {IN_FLIGHT_SECONDS - age:.0f} s: guards may still write rows to ClickHouse")
            await asyncio.sleep(IN_FLIGHT_SECONDS - age)

    async def _wait_for_earlier_move(self, place: HistoryPlace, name: str) -> None:
        """Wait until the rows that an earlier run deleted are gone: they are neither to copy nor copies to rely on."""
        if not await self._are_deleted(place):
            raise CommandError(
                f"ClickHouse of {name} still deletes rows of this tenant. Run the command again later: it continues."
            )

    async def _are_deleted(self, place: HistoryPlace) -> bool:
        """Wait until each replica of a cell has deleted what it was to delete of the tenant, for a bounded time."""
        if place.clickhouse is None:
            return True
        async with place.clickhouse.replicas() as replicas:
            return all([await wait_for_deletion(replica, self._tenant) for replica in replicas])

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
