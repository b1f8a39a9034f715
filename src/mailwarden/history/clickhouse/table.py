"""The rows of history in ClickHouse for `mailwarden history migrate`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import date
from uuid import UUID

from mailwarden.history.clickhouse.binary import Reader, day_literal, list_literal, read_one, read_rows, uuid_literal
from mailwarden.history.clickhouse.clauses import hours_literal
from mailwarden.history.clickhouse.client import BadData, Clickhouse
from mailwarden.history.clickhouse.rows import encode_row
from mailwarden.history.clickhouse.schema import NAMES, existing_days
from mailwarden.history.clickhouse.search import FETCHED, fetch_records, read_cursor
from mailwarden.history.store import Cursor, HistoryRow, RejectedRequest, StoredRecord
from mailwarden.model.scope import Scope

SECONDS = 60.0  # of one statement
_INSERT = f"INSERT INTO history ({NAMES}) FORMAT RowBinary"
_COUNT = "SELECT count() FROM history WHERE day = {day} FORMAT RowBinary"
_HOURS = "SELECT hour FROM history WHERE day = {day} GROUP BY hour ORDER BY hour DESC FORMAT RowBinary"
# In the order of the sort key, so that a page reads little.
_KEYS = """
SELECT ggrid, tenant FROM history
WHERE day = {day} AND hour = {hour} AND (tenant > {tenant} OR tenant = {tenant} AND ggrid > {ggrid})
ORDER BY tenant, ggrid LIMIT 1 BY tenant, ggrid LIMIT {size} FORMAT RowBinary
"""
_STORED = """
SELECT ggrid, tenant FROM history WHERE day = {day} AND hour IN ({hours}) AND ggrid IN ({ggrids})
LIMIT 1 BY ggrid, tenant FORMAT RowBinary
"""
_LOWEST = UUID(int=0)


class ClickhouseTable:
    """The table of history, hour by hour."""

    def __init__(self, clickhouse: Clickhouse) -> None:
        self._clickhouse = clickhouse

    async def days(self) -> Sequence[date]:
        return sorted(await existing_days(self._clickhouse, SECONDS), reverse=True)

    async def count(self, day: date) -> int:
        return read_one(await self._read(_COUNT.format(day=day_literal(day))), Reader.uint64)

    async def keys(self, day: date, size: int) -> AsyncIterator[Sequence[Cursor]]:
        for hour in read_rows(await self._read(_HOURS.format(day=day_literal(day))), Reader.uint32):
            last = Cursor(_LOWEST, _LOWEST)
            while True:
                sql = _KEYS.format(
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

    async def records(self, day: date, keys: Sequence[Cursor]) -> Mapping[Cursor, StoredRecord]:
        found: dict[Cursor, StoredRecord] = {}
        for start in range(0, len(keys), FETCHED):
            some = keys[start : start + FETCHED]
            found |= await fetch_records(self._clickhouse, Scope.deployment(), some, SECONDS)
        return {key: record for key in keys if (record := found.get(key)) is not None}

    async def add(self, day: date, rows: Sequence[HistoryRow]) -> tuple[RejectedRequest, ...]:
        encoded = [each.data for row in rows if (each := encode_row(row)) is not None]
        try:
            # The same block may be written a second time on purpose, after its rows were deleted.
            await self._clickhouse.insert(_INSERT, b"".join(encoded), deduplicate=False)
        except BadData as error:
            if len(rows) == 1:
                return (RejectedRequest(rows[0].request, str(error)),)
        else:
            return ()
        middle = len(rows) // 2
        return (*await self.add(day, rows[:middle]), *await self.add(day, rows[middle:]))

    async def _read(self, sql: str) -> bytes:
        return await self._clickhouse.read(sql, SECONDS)
