"""The rows of history in ClickHouse for `mailwarden history migrate` and for moves of tenants."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import date
from uuid import UUID

from mailwarden.errors import StorageUnavailable
from mailwarden.history.clickhouse.binary import Reader, day_literal, list_literal, read_one, read_rows, uuid_literal
from mailwarden.history.clickhouse.clauses import hours_literal
from mailwarden.history.clickhouse.client import BadData, Clickhouse, TooSlow
from mailwarden.history.clickhouse.rows import encode_row
from mailwarden.history.clickhouse.schema import NAMES, existing_days
from mailwarden.history.clickhouse.search import FETCHED, fetch_records, read_cursor
from mailwarden.history.store import Cursor, RejectedRequest
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope

SECONDS = 60.0  # of one statement
MUTATION_SECONDS = 60.0  # of a deletion of rows
MUTATION_PAUSE = 0.2
_INSERT = f"INSERT INTO history ({NAMES}) FORMAT RowBinary"
_COUNT = "SELECT count() FROM history WHERE day = {day} FORMAT RowBinary"
_COUNT_OF_TENANT = "SELECT uniqExact(ggrid) FROM history WHERE day = {day} AND tenant = {tenant} FORMAT RowBinary"
_HOURS = "SELECT hour FROM history WHERE day = {day} GROUP BY hour ORDER BY hour DESC FORMAT RowBinary"
# In the order of the sort key, so that a page reads little.
_KEYS = """
SELECT ggrid, tenant FROM history
WHERE day = {day} AND hour = {hour} AND (tenant > {tenant} OR tenant = {tenant} AND ggrid > {ggrid})
ORDER BY tenant, ggrid LIMIT 1 BY tenant, ggrid LIMIT {size} FORMAT RowBinary
"""
_KEYS_OF_TENANT = """
SELECT ggrid, tenant FROM history WHERE day = {day} AND hour = {hour} AND tenant = {tenant} AND ggrid > {ggrid}
ORDER BY ggrid LIMIT 1 BY ggrid LIMIT {size} FORMAT RowBinary
"""
_DELETE = "ALTER TABLE history DELETE WHERE tenant = {tenant}"
_DELETIONS = """
SELECT count() FROM system.mutations WHERE database = currentDatabase() AND table = 'history' AND {which}
FORMAT RowBinary
"""
_STORED = """
SELECT ggrid, tenant FROM history WHERE day = {day} AND hour IN ({hours}) AND ggrid IN ({ggrids})
LIMIT 1 BY ggrid, tenant FORMAT RowBinary
"""
_LOWEST = UUID(int=0)


class ClickhouseTable:
    """The table of history, hour by hour; with a tenant, days, counts and keys are of its rows alone."""

    def __init__(self, clickhouse: Clickhouse, tenant: UUID | None = None) -> None:
        self._clickhouse = clickhouse
        self._tenant = tenant

    async def days(self) -> Sequence[date]:
        return sorted(await existing_days(self._clickhouse, SECONDS), reverse=True)

    async def count(self, day: date) -> int:
        sql = _COUNT.format(day=day_literal(day))
        if self._tenant is not None:
            sql = _COUNT_OF_TENANT.format(day=day_literal(day), tenant=uuid_literal(self._tenant))
        return read_one(await self._read(sql), Reader.uint64)

    async def keys(self, day: date, size: int) -> AsyncIterator[Sequence[Cursor]]:
        for hour in read_rows(await self._read(_HOURS.format(day=day_literal(day))), Reader.uint32):
            last, statement = Cursor(_LOWEST, self._tenant or _LOWEST), _KEYS_OF_TENANT if self._tenant else _KEYS
            while True:
                sql = statement.format(
                    day=day_literal(day),
                    hour=hour,
                    tenant=uuid_literal(last.tenant),
                    ggrid=uuid_literal(last.ggrid),
                    size=size,
                )
                keys = read_rows(await self._read(sql), read_cursor)
                if keys:
                    yield keys
                if len(keys) < size:
                    break
                last = keys[-1]

    async def stored(self, day: date, keys: Sequence[Cursor]) -> set[Cursor]:
        ggrids = sorted({key.ggrid for key in keys})
        sql = _STORED.format(
            day=day_literal(day), hours=hours_literal(ggrids), ggrids=list_literal(map(uuid_literal, ggrids))
        )
        return set(read_rows(await self._read(sql), read_cursor))

    async def records(self, day: date, keys: Sequence[Cursor]) -> Mapping[Cursor, bytes]:
        found: dict[Cursor, bytes] = {}
        for start in range(0, len(keys), FETCHED):
            some = keys[start : start + FETCHED]
            try:
                found |= await fetch_records(self._clickhouse, Scope.deployment(), some, SECONDS)
            except TooSlow as error:
                raise _too_slow() from error
        return {key: record for key in keys if (record := found.get(key)) is not None}

    async def add(self, day: date, requests: Sequence[FinishedRequest]) -> tuple[RejectedRequest, ...]:
        rows = [row.data for request in requests if (row := encode_row(request)) is not None]
        try:
            # The same block may be written a second time on purpose, after its rows were deleted.
            await self._clickhouse.insert(_INSERT, b"".join(rows), deduplicate=False)
        except BadData as error:
            if len(requests) == 1:
                return (RejectedRequest(requests[0], str(error)),)
        else:
            return ()
        middle = len(requests) // 2
        return (*await self.add(day, requests[:middle]), *await self.add(day, requests[middle:]))

    async def delete_tenant(self, tenant: UUID) -> None:
        """Delete the rows of a tenant that exist now; `wait_for_deletion` waits for the end."""
        await self._clickhouse.execute(_DELETE.format(tenant=uuid_literal(tenant)), MUTATION_SECONDS)

    async def _read(self, sql: str) -> bytes:
        return await self._clickhouse.read(sql, SECONDS)


async def knows_deletion(clickhouse: Clickhouse, tenant: UUID) -> bool:
    """Return whether a deletion of this tenant's rows was begun in this table, by this server or another replica."""
    sql = _DELETIONS.format(which=_of_tenant(tenant))
    return read_one(await clickhouse.read(sql), Reader.uint64) > 0


async def wait_for_deletion(clickhouse: Clickhouse, tenant: UUID | None = None) -> bool:
    """Wait until deleted rows are gone, for a bounded time; return False if the server still goes on by itself.

    With a tenant, only deletions count that name it. Each replica deletes for itself: ask each one.
    """
    sql = _DELETIONS.format(which="is_done = 0" + (f" AND {_of_tenant(tenant)}" if tenant is not None else ""))
    end = time.monotonic() + MUTATION_SECONDS
    while read_one(await clickhouse.read(sql), Reader.uint64):
        if time.monotonic() > end:
            return False
        await asyncio.sleep(MUTATION_PAUSE)
    return True


def _of_tenant(tenant: UUID) -> str:
    """Return the condition of the deletions that name a tenant (`uuid_literal`)."""
    return f"position(command, '{tenant.hex}') > 0"


def _too_slow() -> StorageUnavailable:
    return StorageUnavailable("The history store does not answer in time.", retry_after=1)
