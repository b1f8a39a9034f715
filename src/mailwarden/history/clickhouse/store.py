"""The HistoryStore of ClickHouse: one row for each ggrid and tenant, in the partition of the ggrid's day.

PostgreSQL keeps everything that needs a transaction: events, counts of senders, campaigns, rollups and the states of
messages. A batch is noted there first (ledger.py) and inserted here then; both parts may be repeated.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import date
from uuid import UUID

from mailwarden.database.pool import Database
from mailwarden.events.scanned import NO_SCANNED_EVENTS, ScannedEvents
from mailwarden.history.clickhouse.binary import Reader, day_literal, list_literal, read_one, read_rows, uuid_literal
from mailwarden.history.clickhouse.clauses import hours_literal
from mailwarden.history.clickhouse.client import BadData, Clickhouse
from mailwarden.history.clickhouse.figures import ClickhouseAttacked, ClickhouseRows, ClickhouseVocabulary
from mailwarden.history.clickhouse.ledger import AnnouncedRow, Ledger
from mailwarden.history.clickhouse.rows import EncodedRow, encode_row
from mailwarden.history.clickhouse.schema import NAMES, KnownDays, existing_days
from mailwarden.history.clickhouse.search import STATEMENT_SECONDS, ClickhouseSearcher, fetch_of_ggrid, fetch_records
from mailwarden.history.postgresql.partitions import check_clock, is_near
from mailwarden.history.postgresql.states import StateReader
from mailwarden.history.postgresql.store import PostgresqlHistoryStore
from mailwarden.history.postgresql.store_base import HistoryStoreBase, require_deployment
from mailwarden.history.store import Cursor, HistoryRow, RejectedRequest, Saved
from mailwarden.model.ggrid import moment_of
from mailwarden.model.outcome import SEVERITY, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.senders.model import Counting
from mailwarden.telemetry.logs import get_logger

MUTATION_SECONDS = 60.0  # of a deletion of rows
MUTATION_PAUSE = 0.2
MAX_TENANTS = 500  # of one deletion
_INSERT = f"INSERT INTO history ({NAMES}) FORMAT RowBinary"
_STORED = """
SELECT ggrid, tenant FROM history WHERE day IN ({days}) AND hour IN ({hours}) AND ggrid IN ({ggrids})
LIMIT 1 BY ggrid, tenant FORMAT RowBinary
"""
_TO_DELETE = """
SELECT tenant, uniqExact(ggrid, tenant) FROM history WHERE {rows} GROUP BY tenant FORMAT RowBinary
"""
_RUNNING = """
SELECT count() FROM system.mutations WHERE database = currentDatabase() AND table = 'history' AND is_done = 0
FORMAT RowBinary
"""
_ANY_SIZE = {"max_partition_size_to_drop": "0"}  # servers before 24.1 refuse to drop more than 50 GB
_log = get_logger("history.clickhouse")


class ClickhouseHistoryStore(HistoryStoreBase):
    """The rows are in ClickHouse, the rest is in PostgreSQL."""

    def __init__(self, clickhouse: Clickhouse, database: Database, judged: ScannedEvents = NO_SCANNED_EVENTS) -> None:
        self._days = KnownDays(clickhouse)
        super().__init__(
            database,
            searcher=ClickhouseSearcher(clickhouse, StateReader(database), self._days),
            rows=ClickhouseRows(clickhouse),
            attacked=ClickhouseAttacked(clickhouse),
            vocabulary=ClickhouseVocabulary(clickhouse, self._days),
        )
        self._clickhouse = clickhouse
        self._judged = judged
        self._ledger = Ledger(database)
        # Rows from before the switch: not searched, and deleted when their time is over.
        self._earlier = PostgresqlHistoryStore(database)

    async def save_rows(self, scope: Scope, rows: Sequence[HistoryRow], counting: Counting | None = None) -> Saved:
        allowed = [row for row in rows if scope.allows(row.request.tenant)]
        if any((moment := moment_of(row.request.ggrid)) and not is_near(moment.date()) for row in allowed):
            async with self._database.connection() as connection:
                await check_clock(connection)
        prepared = [self._prepare(row) for row in allowed]
        refused = Saved(0, tuple(each for each in prepared if isinstance(each, RejectedRequest)))
        # abby may ask a guard twice: of a request that stands here twice, the first is stored.
        unique = {each.row.key: each for each in reversed(prepared) if isinstance(each, AnnouncedRow)}
        if not unique:
            return refused
        ordered = [unique[key] for key in sorted(unique)]
        stored = await self._stored([each.row for each in ordered])
        missing = [each for each in ordered if each.row.key not in stored]
        noted = await self._ledger.note(scope, missing, counting)
        bad = {(each.request.ggrid, each.request.tenant) for each in noted.rejected}
        # A replica that lost Keeper during an insert shows its rows for some minutes and then discards them, and a row
        # that one replica has may lack its quorum. So rows are sent again, and readers see one row of a key.
        sent = ordered if self._clickhouse.target.replicated else missing
        rejected = await self._insert([each.row for each in sent if each.row.key not in bad])
        self._days.note({each.row.day for each in ordered})
        await self._ledger.mark_late([each.row for each in ordered])
        number = len(ordered) - len(noted.rejected) - len(rejected)
        return refused + Saved(number, (*noted.rejected, *rejected), noted.counts)

    def _prepare(self, row: HistoryRow) -> AnnouncedRow | RejectedRequest:
        """Return the row of a request and its event; a bug costs this request and not its batch."""
        request = row.request
        try:
            encoded = encode_row(row)
            if encoded is None:
                return RejectedRequest(request, "the id is not a ggrid")
            if not is_near(encoded.day):
                return RejectedRequest(request, f"history has no partition for {encoded.day}: it is too far from today")
            return AnnouncedRow(encoded, self._judged.event_of(request))
        except Exception as error:
            _log.exception("history_row_not_prepared", ggrid=str(request.ggrid))
            return RejectedRequest(request, f"{type(error).__name__}: {error}")

    async def _stored(self, rows: Sequence[EncodedRow]) -> set[tuple[UUID, UUID]]:
        """Return the keys of rows that ClickHouse has."""
        ggrids = sorted({row.request.ggrid for row in rows})
        sql = _STORED.format(
            days=list_literal(map(day_literal, sorted({row.day for row in rows}))),
            hours=hours_literal(ggrids),
            ggrids=list_literal(map(uuid_literal, ggrids)),
        )
        found = await self._clickhouse.read(sql)
        return set(read_rows(found, lambda reader: (reader.uuid(), reader.uuid())))

    async def _insert(self, rows: Sequence[EncodedRow]) -> tuple[RejectedRequest, ...]:
        """Insert the rows in one block; if their data is refused, in halves down to one row."""
        if not rows:
            return ()
        try:
            await self._clickhouse.insert(_INSERT, b"".join(row.data for row in rows))
        except BadData as error:
            if len(rows) == 1:
                return (RejectedRequest(rows[0].request, str(error)),)
        else:
            return ()
        middle = len(rows) // 2
        return (*await self._insert(rows[:middle]), *await self._insert(rows[middle:]))

    async def find(self, scope: Scope, ggrid: UUID) -> FinishedRequest | None:
        found = await self._of_ggrid(scope, ggrid)
        return found[0] if found else None

    async def find_many(self, scope: Scope, places: Sequence[Cursor]) -> Mapping[Cursor, FinishedRequest]:
        known = [place for place in places if moment_of(place.ggrid) is not None]
        records = await fetch_records(self._clickhouse, scope, known)
        return {place: record.request for place, record in records.items()}

    async def tenants_of(self, scope: Scope, ggrid: UUID) -> Sequence[UUID]:
        return [request.tenant for request in await self._of_ggrid(scope, ggrid)]

    async def _of_ggrid(self, scope: Scope, ggrid: UUID) -> Sequence[FinishedRequest]:
        """Return the requests of a ggrid, the most severe outcome first."""
        if moment_of(ggrid) is None or scope.tenants == frozenset():
            return []
        records = await fetch_of_ggrid(self._clickhouse, scope, ggrid)
        return sorted((record.request for record in records.values()), key=_severity)

    async def delete_days(self, scope: Scope, before: date) -> int:
        require_deployment(scope)
        await self._earlier.delete_days(scope, before)
        await self._ledger.delete_old()
        old = sorted(day for day in await existing_days(self._clickhouse, STATEMENT_SECONDS) if day < before)
        for day in old:
            statement = f"ALTER TABLE history DROP PARTITION '{day:%Y-%m-%d}'"
            await self._clickhouse.execute(statement, MUTATION_SECONDS, optional=_ANY_SIZE)
        self._days.forget()
        return len(old)

    async def delete_for_tenants(self, scope: Scope, before: Mapping[UUID, date]) -> int:
        deleted = await self._earlier.delete_for_tenants(scope, before)
        wanted = sorted(tenant for tenant in before if scope.allows(tenant))
        waits = False
        for start in range(0, len(wanted), MAX_TENANTS):
            some = {tenant: before[tenant] for tenant in wanted[start : start + MAX_TENANTS]}
            answer = await self._clickhouse.read(_TO_DELETE.format(rows=_old_rows(some)), MUTATION_SECONDS)
            found = dict(read_rows(answer, lambda reader: (reader.uuid(), reader.uint64())))
            if found:
                rows = _old_rows({tenant: some[tenant] for tenant in sorted(found)})
                await self._clickhouse.execute(f"ALTER TABLE history DELETE WHERE {rows}", MUTATION_SECONDS)
                deleted += sum(found.values())
                waits = True
        if waits:
            await self._wait_for_deletion()
        return deleted

    async def _wait_for_deletion(self) -> None:
        """Wait until the rows are deleted, for a bounded time: the server goes on by itself."""
        end = time.monotonic() + MUTATION_SECONDS
        while read_one(await self._clickhouse.read(_RUNNING), Reader.uint64):
            if time.monotonic() > end:
                _log.warning("history_deletion_goes_on")
                return
            await asyncio.sleep(MUTATION_PAUSE)


def _severity(request: FinishedRequest) -> tuple[int, int, UUID]:
    decision, verdict = request.ruling.decision, request.judgement.verdict
    return -SEVERITY.index(decision), list(Verdict).index(verdict), request.tenant


def _old_rows(before: Mapping[UUID, date]) -> str:
    """Return the condition of the rows of tenants before their days."""
    return " OR ".join(
        f"(tenant = {uuid_literal(tenant)} AND day < {day_literal(day)})" for tenant, day in before.items()
    )
