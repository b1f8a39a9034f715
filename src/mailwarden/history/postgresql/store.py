"""History in PostgreSQL: one row for each ggrid and tenant, in the partition of the ggrid's day.

Security: the strings come from hostile messages. NUL and lone surrogates are replaced; they never cause an error.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import cast
from uuid import UUID

import asyncpg
from msgspec import Struct

from mailwarden.database.pool import Connection, Database, confirm_earlier
from mailwarden.database.rows import read
from mailwarden.database.visible import in_scope
from mailwarden.errors import StorageUnavailable
from mailwarden.events.scanned import NO_SCANNED_EVENTS, ScannedEvents
from mailwarden.history.postgresql.attacked import AttackedReader
from mailwarden.history.postgresql.partitions import check_clock, create_days, drop_days, existing_days
from mailwarden.history.postgresql.records import fetch_records, record_in
from mailwarden.history.postgresql.search import PostgresqlSearcher
from mailwarden.history.postgresql.statistics import PostgresqlRows, mark_late
from mailwarden.history.postgresql.store_base import HistoryStoreBase, require_deployment
from mailwarden.history.postgresql.vocabulary import VocabularyReader
from mailwarden.history.store import Cursor, HistoryRow, RejectedRequest, Saved
from mailwarden.model.ggrid import day_of, moment_of
from mailwarden.model.outcome import SEVERITY, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.storable import replace_unstorable
from mailwarden.search.terms import plain_address, term_hash, term_hashes
from mailwarden.search.words import stored_words
from mailwarden.senders.model import Counting
from mailwarden.senders.store import BAD_DATA, add_new_counts
from mailwarden.telemetry.logs import get_logger

_log = get_logger("history.postgresql")

_INSERT = """
INSERT INTO history (day, ggrid, tenant, created, completed, source, guard, envelope_from, recipients, from_address,
                     subject, message_id, sha256, verdict, decision, tags, url_hosts, record, remote_address,
                     terms, words, campaign, shared_campaign)
SELECT day, ggrid, tenant, created, completed, source, guard, envelope_from, string_to_array(recipients, E'\\x1f'),
       from_address, subject, message_id, sha256, verdict, decision, string_to_array(tags, E'\\x1f'),
       string_to_array(url_hosts, E'\\x1f'), record, remote_address::inet, terms::bigint[],
       array_to_tsvector(string_to_array(words, E'\\x1f')), campaign, shared_campaign
FROM unnest($1::date[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
            $16::text[], $17::text[], $18::bytea[], $19::text[], $20::text[], $21::text[], $22::uuid[],
            $23::uuid[])
     AS given (day, ggrid, tenant, created, completed, source, guard, envelope_from, recipients, from_address,
               subject, message_id, sha256, verdict, decision, tags, url_hosts, record, remote_address, terms, words,
               campaign, shared_campaign)
ON CONFLICT (day, ggrid, tenant) DO NOTHING
RETURNING ggrid, tenant
"""
# A row that is stored already gets no second event. The event's columns have an array of their own: the
# rows of `given` hold whole records, which must not be copied for a join.
_INSERT_WITH_EVENTS = f"""
WITH stored AS ({_INSERT}), announced AS (
    INSERT INTO events (id, type, tenant, subject, data)
    SELECT event, 'message.scanned', tenant, ggrid::text, judged
    FROM stored
    JOIN unnest($2::uuid[], $3::uuid[], $24::uuid[], $25::text[]) AS judgements (ggrid, tenant, event, judged)
         USING (ggrid, tenant)
    WHERE event IS NOT NULL
)
SELECT ggrid, tenant FROM stored
"""  # noqa: S608 -- built from constants
# The most severe outcome first, as `severity` ranks them.
_OF_GGRID = f"""
FROM history WHERE day = $1 AND ggrid = $2 AND {in_scope(scope="$3")}
ORDER BY array_position($4::text[], decision) DESC, array_position($5::text[], verdict), tenant
"""
_FIND = f"SELECT record, campaign, shared_campaign {_OF_GGRID} LIMIT 1"
_TENANTS_OF = f"SELECT tenant {_OF_GGRID}"

DELETE_BATCH = 1_000
_DELETE_FOR_TENANT = """
DELETE FROM history WHERE day = $1 AND tenant = $2 AND ggrid IN (
    SELECT ggrid FROM history WHERE day = $1 AND tenant = $2 AND terms @> $3::bigint[] LIMIT $4
)
"""

MAX_TEXT = 2_000  # of a search column; the record holds the whole text
_SEPARATOR = "\x1f"  # of texts that `string_to_array` splits in the database

Columns = tuple[object, ...]


class _Row(Struct, frozen=True):
    request: FinishedRequest
    columns: Columns

    @property
    def day(self) -> date:
        return cast("date", self.columns[0])


class PostgresqlHistoryStore(HistoryStoreBase):
    """The HistoryStore of PostgreSQL."""

    def __init__(self, database: Database, judged: ScannedEvents = NO_SCANNED_EVENTS) -> None:
        super().__init__(
            database,
            searcher=PostgresqlSearcher(database),
            rows=PostgresqlRows(),
            attacked=AttackedReader(database),
            vocabulary=VocabularyReader(database),
        )
        self._judged = judged
        self._days: set[date] = set()

    async def save_rows(self, scope: Scope, rows: Sequence[HistoryRow], counting: Counting | None = None) -> Saved:
        prepared = [self._prepare(row) for row in rows if scope.allows(row.request.tenant)]
        refused = Saved(0, tuple(each for each in prepared if isinstance(each, RejectedRequest)))
        # The same order in every guard, so that two guards with the same requests cannot deadlock.
        ordered = sorted((each for each in prepared if isinstance(each, _Row)), key=lambda row: row.columns[:3])
        # abby may ask a guard twice: of a request that stands here twice, the first is stored and announced.
        unique = list({row.columns[:3]: row for row in reversed(ordered)}.values())[::-1]
        if not unique:
            return refused
        try:
            async with self._database.connection() as connection:
                kept, without = await self._with_partition(connection, unique)
                return refused + without + await self._store(connection, scope, kept, counting)
        except asyncpg.PostgresError as error:
            # Not about a row, nor an outage that the pool knows, such as a missing permission: the rows must wait.
            reason = f"The database does not accept history ({type(error).__name__}: {error})."
            raise StorageUnavailable(reason, retry_after=1) from error

    def _prepare(self, row: HistoryRow) -> _Row | RejectedRequest:
        """Return the columns of a request; a bug costs this request and not its batch."""
        request = row.request
        try:
            columns = _columns(row)
            if columns is None:
                return RejectedRequest(request, "the id is not a ggrid")
            return _Row(request, (*columns, *(self._judged.event_of(request) or (None, None))))
        except Exception as error:
            _log.exception("history_row_not_prepared", ggrid=str(request.ggrid))
            return RejectedRequest(request, f"{type(error).__name__}: {error}")

    async def find(self, scope: Scope, ggrid: UUID) -> FinishedRequest | None:
        values = _ggrid_values(scope, ggrid)
        if values is None:
            return None
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_FIND, *values)
        return None if row is None else record_in(row).request

    async def find_many(self, scope: Scope, places: Sequence[Cursor]) -> Mapping[Cursor, FinishedRequest]:
        async with self._database.connection() as connection:
            records = await fetch_records(connection, scope, places)
        return {place: record.request for place, record in records.items()}

    async def tenants_of(self, scope: Scope, ggrid: UUID) -> Sequence[UUID]:
        values = _ggrid_values(scope, ggrid)
        if values is None:
            return ()
        async with self._database.connection() as connection:
            return [read(row, "tenant", UUID) for row in await connection.fetch(_TENANTS_OF, *values)]

    async def delete_days(self, scope: Scope, before: date) -> int:
        require_deployment(scope)
        async with self._database.connection() as connection:
            self._days.clear()
            return await drop_days(connection, before)

    async def delete_for_tenants(self, scope: Scope, before: Mapping[UUID, date]) -> int:
        async with self._database.connection() as connection:
            days = sorted(await existing_days(connection))
        deleted = 0
        for tenant in sorted(tenant for tenant in before if scope.allows(tenant)):
            for day in (day for day in days if day < before[tenant]):
                deleted += await self._delete_day_of_tenant(day, tenant)
        return deleted

    async def _delete_day_of_tenant(self, day: date, tenant: UUID) -> int:
        """Delete in small transactions, so that nothing waits for locks on many rows."""
        deleted = 0
        while True:
            async with self._database.connection() as connection:
                terms = [term_hash(f"tenant:{tenant}")]
                status = await connection.execute(_DELETE_FOR_TENANT, day, tenant, terms, DELETE_BATCH)
            batch = int(status.rpartition(" ")[2])
            deleted += batch
            if batch < DELETE_BATCH:
                return deleted

    async def _with_partition(self, connection: Connection, rows: Sequence[_Row]) -> tuple[Sequence[_Row], Saved]:
        """Create missing partitions; return the rows that have one, and the others as rejected."""
        days = {row.day for row in rows}
        if not days <= self._days:
            self._days = await create_days(connection, days)
        without = tuple(
            RejectedRequest(row.request, f"history has no partition for {row.day}: it is too far from today")
            for row in rows
            if row.day not in self._days
        )
        if without:
            await check_clock(connection)
        return [row for row in rows if row.day in self._days], Saved(0, without)

    async def _store(
        self, connection: Connection, scope: Scope, rows: Sequence[_Row], counting: Counting | None
    ) -> Saved:
        """Store the rows with their events and counts in one transaction; if that fails, in halves down to one row."""
        if not rows:
            return Saved(0)
        try:
            async with connection.transaction():
                new = await self._insert(connection, rows)
                if len(new) < len(rows):
                    await confirm_earlier(connection)
                counts = await add_new_counts(connection, scope, new, counting) if counting and new else ()
                oldest = moment_of(rows[0].request.ggrid)
                if oldest is not None:
                    await mark_late(connection, oldest)
        except asyncpg.CheckViolationError:
            # Another process dropped a partition that is in our set: the next attempt reads the set again.
            self._days.clear()
            raise StorageUnavailable("A partition of history was dropped during the write.", retry_after=1) from None
        except BAD_DATA as error:
            if len(rows) == 1:
                return Saved(0, (RejectedRequest(rows[0].request, f"{type(error).__name__}: {error}"),))
        else:
            return Saved(len(rows), (), counts)
        middle = len(rows) // 2
        first = await self._store(connection, scope, rows[:middle], counting)
        return first + await self._store(connection, scope, rows[middle:], counting)

    async def _insert(self, connection: Connection, rows: Sequence[_Row]) -> list[FinishedRequest]:
        """Insert the rows and return the requests that were not stored before."""
        columns = [list(column) for column in zip(*(row.columns for row in rows), strict=True)]
        if any(columns[-1]):
            found = await connection.fetch(_INSERT_WITH_EVENTS, *columns)
        else:
            found = await connection.fetch(_INSERT, *columns[:-2])
        new = {(row["ggrid"], row["tenant"]) for row in found}
        by_key = {(row.request.ggrid, row.request.tenant): row.request for row in rows}
        return [request for key, request in by_key.items() if key in new]


def _ggrid_values(scope: Scope, ggrid: UUID) -> Columns | None:
    """Return the parameters of statements about one ggrid, or None if it is not a ggrid."""
    day = day_of(ggrid)
    tenants = None if scope.tenants is None else sorted(scope.tenants)
    return None if day is None else (day, ggrid, tenants, SEVERITY, tuple(Verdict))


def _columns(row: HistoryRow) -> Columns | None:
    """Return the columns of a request, or None if its id is not a ggrid."""
    request = row.request
    day = day_of(request.ggrid)
    if day is None:
        return None
    summary = request.summary
    return (
        day,
        request.ggrid,
        request.tenant,
        request.created,
        request.completed,
        _text(request.source),
        _text(request.guard),
        _text(request.envelope.sender),
        _joined(request.envelope.recipients),
        _text(summary.from_address),
        _text(summary.subject),
        _text(summary.message_id),
        _text(summary.sha256),
        request.judgement.verdict,
        request.ruling.decision,
        _joined(request.tags),
        _joined(summary.url_hosts),
        row.record,
        _address(request.envelope.remote_address),
        f"{{{','.join(map(str, term_hashes(request)))}}}",
        stored_words(request),
        request.campaign.own if request.campaign else None,
        request.campaign.shared if request.campaign else None,
    )


def _address(text: str | None) -> str | None:
    """Return the address in PostgreSQL's form, or None if it is missing or invalid."""
    try:
        return None if text is None else str(plain_address(text))
    except ValueError:
        return None


def _text(text: str) -> str:
    """Return the text of a search column."""
    return replace_unstorable(text[:MAX_TEXT])


def _joined(texts: tuple[str, ...]) -> str:
    """Return several texts as one, which `string_to_array` splits in the database."""
    return replace_unstorable(_SEPARATOR.join(text[:MAX_TEXT].replace(_SEPARATOR, " ") for text in texts))
