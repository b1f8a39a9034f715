"""History in PostgreSQL: one row for each ggrid and tenant, in the partition of the ggrid's day.

Security: the strings come from hostile messages. NUL and lone surrogates are replaced; they never cause an error.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import cast
from uuid import UUID

import asyncpg

from mailwarden.database.pool import Connection, Database
from mailwarden.errors import GlobalScopeForbidden, StorageUnavailable
from mailwarden.events.judged import NO_JUDGED_EVENTS, JudgedEvents
from mailwarden.history.postgresql.attacked import AttackedReader
from mailwarden.history.postgresql.campaigns import PostgresqlCampaignStore
from mailwarden.history.postgresql.days import read_days
from mailwarden.history.postgresql.partitions import create_days, drop_days, existing_days
from mailwarden.history.postgresql.search import Searcher, behind
from mailwarden.history.postgresql.senders import PostgresqlSenderStore
from mailwarden.history.postgresql.statistics import StatisticsReader, mark_late, update_rollups
from mailwarden.history.postgresql.vocabulary import VocabularyReader
from mailwarden.history.postgresql.word_backfill import add_words, check_recent_days
from mailwarden.history.query import UNDECIDED, Query, any_of
from mailwarden.history.records import decode, encode
from mailwarden.history.store import (
    MAX_COMPARED,
    MAX_COUNTED,
    MAX_ROWS,
    Attacked,
    CampaignStore,
    Count,
    Cursor,
    DayFigures,
    Facets,
    Order,
    Page,
    Range,
    Row,
    SenderStore,
    Statistics,
)
from mailwarden.history.suggestions import Vocabulary
from mailwarden.history.terms import plain_address, term_hash, term_hashes
from mailwarden.history.words import stored_words
from mailwarden.model.ggrid import day_of, moment_of
from mailwarden.model.outcome import SEVERITY, Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.storable import replace_unstorable
from mailwarden.telemetry.logs import get_logger

_log = get_logger("history.postgresql")

_INSERT = """
INSERT INTO history (day, ggrid, tenant, created, completed, source, guard, envelope_from, recipients, from_address,
                     subject, message_id, sha256, verdict, decision, tags, url_hosts, record, remote_address,
                     terms, words, campaign)
SELECT day, ggrid, tenant, created, completed, source, guard, envelope_from, string_to_array(recipients, E'\\x1f'),
       from_address, subject, message_id, sha256, verdict, decision, string_to_array(tags, E'\\x1f'),
       string_to_array(url_hosts, E'\\x1f'), record, remote_address::inet, terms::bigint[],
       array_to_tsvector(string_to_array(words, E'\\x1f')), campaign
FROM unnest($1::date[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
            $16::text[], $17::text[], $18::bytea[], $19::text[], $20::text[], $21::text[], $22::uuid[])
     AS given (day, ggrid, tenant, created, completed, source, guard, envelope_from, recipients, from_address,
               subject, message_id, sha256, verdict, decision, tags, url_hosts, record, remote_address, terms, words,
               campaign)
ON CONFLICT (day, ggrid, tenant) DO NOTHING
"""
# A row that another guard has stored already gets no second event. The event's columns have an array of their own: the
# rows of `given` hold whole records, which must not be copied for a join.
_INSERT_WITH_EVENTS = f"""
WITH stored AS ({_INSERT} RETURNING ggrid, tenant)
INSERT INTO events (id, type, tenant, subject, data)
SELECT event, 'message.judged', tenant, ggrid::text, judged
FROM stored JOIN unnest($2::uuid[], $3::uuid[], $23::uuid[], $24::text[]) AS judgements (ggrid, tenant, event, judged)
     USING (ggrid, tenant)
WHERE event IS NOT NULL
"""  # noqa: S608 -- built from constants
# The most severe outcome first, as `severity` ranks them.
_OF_GGRID = """
FROM history WHERE day = $1 AND ggrid = $2 AND ($3::uuid[] IS NULL OR tenant = ANY($3))
ORDER BY array_position($4::text[], decision) DESC, array_position($5::text[], verdict), tenant
"""
_FIND = f"SELECT record {_OF_GGRID} LIMIT 1"
_TENANTS_OF = f"SELECT tenant {_OF_GGRID}"

_TENANT_RETENTION = "SELECT uid, retention_days FROM tenants WHERE retention_days IS NOT NULL"
DELETE_BATCH = 1_000
_DELETE_FOR_TENANT = """
DELETE FROM history WHERE day = $1 AND tenant = $2 AND ggrid IN (
    SELECT ggrid FROM history WHERE day = $1 AND tenant = $2 AND terms @> $3::bigint[] LIMIT $4
)
"""

SEARCH_SECONDS = 0.25  # after which a search starts no further window
CANDIDATE_SECONDS = 1.0
MAX_CANDIDATES = 20_000

MAX_TEXT = 2_000  # of a search column; the record holds the whole text
_SEPARATOR = "\x1f"  # of texts that `string_to_array` splits in the database

Columns = tuple[object, ...]


class PostgresqlHistoryStore:
    """The HistoryStore of PostgreSQL."""

    def __init__(self, database: Database, judged: JudgedEvents = NO_JUDGED_EVENTS) -> None:
        self._judged = judged
        self.senders: SenderStore = PostgresqlSenderStore(database)
        self.campaigns: CampaignStore = PostgresqlCampaignStore(database)
        self._database = database
        self._searcher = Searcher(database)
        self._statistics = StatisticsReader(database)
        self._attacked = AttackedReader(database)
        self._vocabulary = VocabularyReader(database)
        self._days: set[date] = set()
        self._checked_for_words = False

    async def save(self, scope: Scope, requests: Sequence[FinishedRequest]) -> int:
        rows = [
            (*row, *(self._judged.event_of(request) or (None, None)))
            for request in requests
            if scope.allows(request.tenant) and (row := _columns(request))
        ]
        if not rows:
            return 0
        # The same order in every guard, so that two guards with the same requests cannot deadlock.
        rows.sort(key=lambda row: row[:3])
        async with self._database.connection() as connection:
            stored = await self._insert(connection, await self._with_partition(connection, rows))
            oldest = moment_of(cast("UUID", rows[0][1]))
            if oldest is not None:
                await mark_late(connection, oldest)
            return stored

    async def find(self, scope: Scope, ggrid: UUID) -> FinishedRequest | None:
        values = _ggrid_values(scope, ggrid)
        if values is None:
            return None
        async with self._database.connection() as connection:
            record = await connection.fetchval(_FIND, *values)
        return None if record is None else decode(cast("bytes", record))

    async def tenants_of(self, scope: Scope, ggrid: UUID) -> Sequence[UUID]:
        values = _ggrid_values(scope, ggrid)
        if values is None:
            return ()
        async with self._database.connection() as connection:
            return [cast("UUID", row["tenant"]) for row in await connection.fetch(_TENANTS_OF, *values)]

    async def search(
        self,
        scope: Scope,
        query: Query,
        place: Cursor | None = None,
        limit: int = 50,
        order: Order = Order.NEWEST,
    ) -> Page:
        limit = max(1, min(limit, MAX_ROWS))
        if order is Order.POINTS:
            return await self._by_points(scope, query, place, limit)
        found = await self._searcher.search(scope, query, place, limit + 1, SEARCH_SECONDS, order=order)
        if len(found.requests) > limit:
            rows = tuple(Row.of(each, scope) for each in found.requests[:limit])
            return Page(rows, next=behind(Cursor.of(rows[-1]), order), unindexed=found.unindexed)
        rows = tuple(Row.of(each, scope) for each in found.requests)
        if found.complete:
            return Page(rows, unindexed=found.unindexed)
        reached = moment_of(found.reached.ggrid)
        return Page(rows, found.reached, complete=False, searched_to=reached, unindexed=found.unindexed)

    async def _by_points(self, scope: Scope, query: Query, place: Cursor | None, limit: int) -> Page:
        """Compare the newest matches; `place` is the last row of the previous page."""
        found = await self._searcher.search(scope, query, None, MAX_COMPARED + 1, SEARCH_SECONDS)
        rows = sorted(
            (Row.of(each, scope) for each in found.requests[:MAX_COMPARED]),
            key=lambda row: (row.points, row.ggrid, row.tenant),
        )
        rows.reverse()
        cursors = [Cursor.of(row) for row in rows]
        start = cursors.index(place) + 1 if place in cursors else 0
        shown = tuple(rows[start : start + limit])
        return Page(
            shown,
            next=Cursor.of(shown[-1]) if start + limit < len(rows) else None,
            complete=found.complete and len(found.requests) <= MAX_COMPARED,
            searched_to=moment_of(min(cursors).ggrid if cursors else found.reached.ggrid),
            unindexed=found.unindexed,
        )

    async def facets(self, scope: Scope, query: Query) -> Facets:
        found = await self._searcher.search(scope, query, None, MAX_COUNTED + 1, SEARCH_SECONDS)
        counted = found.requests[:MAX_COUNTED]
        total, exact = len(counted), found.complete and len(found.requests) <= MAX_COUNTED
        if not exact and not any(condition.phrase for condition in query.conditions):
            count = await self._searcher.count(scope, query, SEARCH_SECONDS)
            total, exact = max(total, count.counted), count.exact
        states = await self._searcher.states(counted)
        decisions = Counter(each.ruling.decision for each in counted)
        by_state = Counter(state for each in states.values() for state in each)
        by_state[UNDECIDED] = decisions[Decision.UNDECIDED]
        return Facets(
            total=total,
            exact=exact,
            counted=len(counted),
            tenants=Counter(each.tenant for each in counted),
            verdicts=Counter(each.judgement.verdict for each in counted),
            decisions=decisions,
            states=by_state,
        )

    async def vocabulary(self, scope: Scope) -> Vocabulary:
        return await self._vocabulary.read(scope)

    async def candidates(
        self, scope: Scope, terms: Sequence[str], since: datetime, limit: int
    ) -> Sequence[FinishedRequest]:
        query, limit = any_of(terms, since), max(1, min(limit, MAX_CANDIDATES))
        return (await self._searcher.search(scope, query, None, limit, CANDIDATE_SECONDS)).requests

    async def count(self, scope: Scope, terms: Sequence[str], since: datetime, timeout: float = 1.0) -> Count:  # noqa: ASYNC109
        return await self._searcher.count(scope, any_of(terms, since), timeout)

    async def statistics(self, scope: Scope, range_: Range) -> Statistics:
        return await self._statistics.read(scope, range_)

    async def attacked(self, scope: Scope, range_: Range) -> Attacked:
        return await self._attacked.read(scope, range_)

    async def attacked_between(self, scope: Scope, since: datetime, until: datetime) -> Attacked:
        return await self._attacked.read_between(scope, since, until)

    async def days(self, scope: Scope, since: date, until: date) -> DayFigures:
        async with self._database.connection() as connection:
            return await read_days(connection, scope, since, until)

    async def today(self, scope: Scope) -> Mapping[str, int]:
        return await self._statistics.read_today(scope)

    async def update_rollups(self, scope: Scope) -> datetime | None:
        _require_deployment(scope)
        async with self._database.connection() as connection:
            return await update_rollups(connection)

    async def add_words(self, scope: Scope) -> int | None:
        _require_deployment(scope)
        async with self._database.connection() as connection:
            if not self._checked_for_words:
                await check_recent_days(connection)
                self._checked_for_words = True
            return await add_words(connection)

    async def delete_days(self, scope: Scope, before: date) -> int:
        _require_deployment(scope)
        async with self._database.connection() as connection:
            self._days.clear()
            return await drop_days(connection, before)

    async def tenant_retention(self, scope: Scope) -> Mapping[UUID, int]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_TENANT_RETENTION)
        days = {cast("UUID", row["uid"]): cast("int", row["retention_days"]) for row in rows}
        return {tenant: number for tenant, number in days.items() if scope.allows(tenant)}

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

    async def _with_partition(self, connection: Connection, rows: Sequence[Columns]) -> Sequence[Columns]:
        """Create missing partitions and return the rows that have one."""
        days = {cast("date", row[0]) for row in rows}
        if not days <= self._days:
            self._days = await create_days(connection, days)
        for row in rows:
            if row[0] not in self._days:
                _log.error("history_row_without_partition", ggrid=str(row[1]), day=str(row[0]))
        return [row for row in rows if row[0] in self._days]

    async def _insert(self, connection: Connection, rows: Sequence[Columns]) -> int:
        """Insert the rows in one statement; if that fails, in halves, until the bad row is alone."""
        if not rows:
            return 0
        try:
            columns = [list(column) for column in zip(*rows, strict=True)]
            if any(columns[-1]):
                await connection.execute(_INSERT_WITH_EVENTS, *columns)
            else:
                await connection.execute(_INSERT, *columns[:-2])
        except asyncpg.CheckViolationError:
            # Another process dropped a partition that is in our set: the next attempt reads the set again.
            self._days.clear()
            raise StorageUnavailable("A partition of history was dropped during the write.", retry_after=1) from None
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError):
            if len(rows) == 1:
                _log.exception("history_row_rejected", ggrid=str(rows[0][1]))
                return 0
        else:
            return len(rows)
        middle = len(rows) // 2
        return await self._insert(connection, rows[:middle]) + await self._insert(connection, rows[middle:])


def _require_deployment(scope: Scope) -> None:
    if scope.tenants is not None:
        raise GlobalScopeForbidden(
            "Only the scope of the whole deployment may delete days, count rollups or add words."
        )


def _ggrid_values(scope: Scope, ggrid: UUID) -> Columns | None:
    """Return the parameters of statements about one ggrid, or None if it is not a ggrid."""
    day = day_of(ggrid)
    tenants = None if scope.tenants is None else sorted(scope.tenants)
    return None if day is None else (day, ggrid, tenants, SEVERITY, tuple(Verdict))


def _columns(request: FinishedRequest) -> Columns | None:
    """Return the columns of a request, or None if its id is not a ggrid."""
    day = day_of(request.ggrid)
    if day is None:
        _log.error("history_row_rejected", ggrid=str(request.ggrid), reason="the id is not a ggrid")
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
        encode(request),
        _address(request.envelope.remote_address),
        f"{{{','.join(map(str, term_hashes(request)))}}}",
        stored_words(request),
        request.campaign.own if request.campaign else None,
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
