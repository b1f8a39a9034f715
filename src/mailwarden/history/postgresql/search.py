"""Searches history in PostgreSQL: in the order of time, reading as little as the page needs, within a time limit.

Frequent terms are found by scanning the first rows; rare terms by the index of terms, in windows of time that grow.
The time is checked between windows: a slow search returns what it found and how far it read. Settings choose the
plan, as PostgreSQL has no statistics about combinations of terms.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from typing import cast
from uuid import UUID

import asyncpg
from msgspec.structs import replace

from mailwarden.database.pool import EVERYTHING, Connection, Database, Row, scoped
from mailwarden.errors import SearchTooBroad
from mailwarden.history.postgresql.partitions import existing_days
from mailwarden.history.postgresql.records import cursor_in, fetch_records, records_in
from mailwarden.history.spans import (
    START,
    SearchClock,
    SearchProgress,
    Span,
    behind,
    expand_negation,
    narrow_scope,
    query_span,
    windows,
)
from mailwarden.history.store import Cursor, Order, StoredRecord
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.search.count import Count
from mailwarden.search.query import (
    HELD,
    RELEASED,
    REPORTED,
    Condition,
    Query,
    phrases_match,
    subject_may_match,
)
from mailwarden.search.terms import term_hash
from mailwarden.search.words import PREFIX, tenant_lexeme

STATEMENT_TIMEOUT = 2.0
NEWEST = 4_000  # rows that are scanned before the index is used; with the order `oldest`, the oldest
_DECODED = 200  # records between two yields to the event loop
_COMPARED = 2_000  # subjects that one statement fetches for a phrase
RESERVED = 7

_HAS_ALL = "terms @> {}::bigint[]"
_HAS_ONE = "terms && {}::bigint[]"
_HAS_WORDS = "words @@ {}::text::tsquery"
# The state of a message is in the tables of quarantine and reports. A scalar query is not turned into a join, which
# would read every held message; LIMIT keeps it a lookup for each row.
_OF_RECIPIENT = """(SELECT true FROM quarantine JOIN quarantine_recipients ON message = uid
        WHERE quarantine.tenant = history.tenant AND quarantine.ggrid = history.ggrid
          AND state IN ({}) LIMIT 1)"""
_IN_STATE = {
    HELD: _OF_RECIPIENT.format("'held', 'releasing'"),
    RELEASED: _OF_RECIPIENT.format("'released'"),
    REPORTED: """(SELECT true FROM training_reports
        WHERE training_reports.tenant = history.tenant AND training_reports.ggrid = history.ggrid LIMIT 1)""",
}
# Users release and report few messages: their ids, within the window, lead to the rows.
_OF_STATE = {
    RELEASED: """ggrid = ANY (ARRAY(SELECT quarantine.ggrid FROM quarantine_recipients
        JOIN quarantine ON uid = message WHERE state = 'released' AND quarantine.ggrid BETWEEN $3 AND $4))""",
    REPORTED: "ggrid = ANY (ARRAY(SELECT ggrid FROM training_reports WHERE ggrid BETWEEN $3 AND $4))",
}
STATES_OF = """
SELECT ggrid, tenant, {held} AS held, {released} AS released, {reported} AS reported
FROM unnest($1::uuid[], $2::uuid[]) AS history (ggrid, tenant)
""".format(**_IN_STATE)

_BY_TIME = {
    Order.NEWEST: "ORDER BY day DESC, ggrid DESC, tenant DESC",
    Order.OLDEST: "ORDER BY day, ggrid, tenant",
}
# Each statement reads the rows of a Span, see Span.values.
_SELECT = """
SELECT tenant, ggrid, {columns} FROM history WHERE day BETWEEN $1 AND $2 AND ggrid >= $3 AND (ggrid, tenant) >= ($3, $6)
  AND ggrid <= $4 AND (ggrid, tenant) < ($4, $5) AND {conditions}
{order} LIMIT $7
"""
_SELECT_FIRST = """
SELECT tenant, ggrid, {columns} FROM (
    SELECT * FROM history WHERE day BETWEEN $1 AND $2 AND ggrid >= $3 AND (ggrid, tenant) >= ($3, $6)
  AND ggrid <= $4 AND (ggrid, tenant) < ($4, $5)
    {order} LIMIT {first}
) AS history WHERE {conditions} LIMIT $7
"""
# The last of the scanned rows; without one, the scan read every row.
_SELECT_LAST_SCANNED = """
SELECT ggrid, tenant FROM history WHERE day BETWEEN $1 AND $2 AND ggrid >= $3 AND (ggrid, tenant) >= ($3, $6)
  AND ggrid <= $4 AND (ggrid, tenant) < ($4, $5)
{order} OFFSET $7 LIMIT 1
"""
_COUNT = """
SELECT count(*) FROM history WHERE day BETWEEN $1 AND $2 AND ggrid >= $3 AND (ggrid, tenant) >= ($3, $6)
  AND ggrid <= $4 AND (ggrid, tenant) < ($4, $5) AND {conditions} LIMIT $7
"""
_TIMEOUT = "SET LOCAL statement_timeout = {milliseconds}"
_BEGIN = f"{_TIMEOUT}; SET LOCAL plan_cache_mode = force_custom_plan; {{plan}}"
_SCAN = "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = on"
INDEX = "SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off"


class Clauses:
    """The WHERE clause of one search, with every value as a parameter.

    `indexed` is whether the index of terms can find the rows. The caller uses the first `reserved` parameters.
    """

    def __init__(self, scope: Scope, conditions: Sequence[Condition], reserved: int) -> None:
        self.values: list[object] = []
        self._reserved = reserved
        self._clauses: list[str] = []
        self._required: list[str] = []  # terms that every row must have
        self._tenant = tenant_lexeme(*scope.tenants) if scope.tenants and len(scope.tenants) == 1 else ""
        self._by_words = False
        self.indexed = False
        for condition in map(expand_negation, conditions):
            if condition.negated:
                self._exclude(condition)
            else:
                self._require(condition)
        self._restrict_to(scope)
        if self._required:  # in one expression, so that the index starts with the rarest term
            self._clauses.append(self._has(_HAS_ALL, self._required))

    @property
    def sql(self) -> str:
        return " AND ".join(self._clauses) if self._clauses else "true"

    def _restrict_to(self, scope: Scope) -> None:
        """Restrict the rows to the scope: always by the column, and by the index if that is faster."""
        if scope.tenants is None:
            return
        tenants: list[UUID] = sorted(scope.tenants)
        self._clauses.append(f"tenant = ANY({self._parameter(tenants)}::uuid[])")
        # A condition on words has the tenant in its own expression.
        if (len(tenants) == 1 and not self._by_words) or not self.indexed:
            self._require(Condition("tenant", "", (tuple(f"tenant:{tenant}" for tenant in tenants),)))

    def _require(self, condition: Condition) -> None:
        self.indexed = self.indexed or bool(condition.groups or condition.words or condition.state)
        if condition.state in _OF_STATE:
            self._clauses.append(_OF_STATE[condition.state])
        self._by_words = self._by_words or bool(condition.words)
        if condition.either:
            self._clauses += self._expressions(condition)
            return
        single = [group[0] for group in condition.groups if len(group) == 1]
        several = tuple(group for group in condition.groups if len(group) != 1)
        self._required += single
        self._clauses += self._expressions(replace(condition, groups=several))

    def _exclude(self, condition: Condition) -> None:
        if not condition.phrase:  # a row with all words of a phrase may not contain the phrase
            self._clauses.append(f"({' AND '.join(self._expressions(condition))}) IS NOT TRUE")

    def _expressions(self, condition: Condition) -> list[str]:
        expressions = [self._has(_HAS_ONE, group) for group in condition.groups]
        if condition.words:
            expressions.append(_HAS_WORDS.format(self._parameter(tsquery(condition.words, self._tenant))))
        if condition.either:
            expressions = [f"({' OR '.join(expressions)})"]
        if condition.state:
            expressions.append(_IN_STATE[condition.state])
        if condition.network:
            expressions.append(f"remote_address <<= {self._parameter(condition.network)}::text::inet")
        if condition.ggrid is not None:
            expressions.append(f"ggrid = {self._parameter(condition.ggrid)}")
        return expressions

    def _has(self, piece: str, terms: Sequence[str]) -> str:
        return piece.format(self._parameter([term_hash(term) for term in terms]))

    def _parameter(self, value: object) -> str:
        self.values.append(value)
        return f"${self._reserved + len(self.values)}"


def tsquery(groups: Sequence[Sequence[str]], tenant: str = "") -> str:
    """Return the text search query of a condition: one lexeme of each group, in the rows of the tenant."""
    alternatives = [f"({' | '.join(map(_lexeme, group))})" for group in groups]
    return " & ".join([_lexeme(tenant), *alternatives] if tenant else alternatives)


def _lexeme(pattern: str) -> str:
    # A word has letters and digits only, so that it needs no escape inside the quotation marks.
    return f"'{pattern[:-1]}':*" if pattern.endswith(PREFIX) else f"'{pattern}'"


@asynccontextmanager
async def reading(database: Database, seconds: float, plan: str = _SCAN) -> AsyncIterator[Connection]:
    """Begin a read-only snapshot whose statements take at most `seconds` each; a longer one is SearchTooBroad."""
    first = _BEGIN.format(milliseconds=_milliseconds(seconds), plan=plan)
    async with database.connection() as connection, scoped(connection, EVERYTHING, snapshot=True, first=first):
        try:
            yield connection
        except asyncpg.QueryCanceledError:  # not an outage: the connection is good
            raise SearchTooBroad("This search takes too long: narrow the time range, or add a term.") from None


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


class PostgresqlSearcher:
    """Runs each search in one read-only snapshot."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(
        self,
        scope: Scope,
        query: Query,
        place: Cursor | None,
        limit: int,
        seconds: float,
        *,
        order: Order = Order.NEWEST,
    ) -> SearchProgress:
        """Return the first requests from `place` on, in the order of time, in about `seconds`."""
        scope = narrow_scope(scope, query.conditions)
        if scope.tenants is not None and not scope.tenants:
            return SearchProgress.start(Span(START, START))
        clauses = Clauses(scope, query.conditions, RESERVED)
        clock = SearchClock(seconds)
        async with reading(self._database, STATEMENT_TIMEOUT) as connection:
            span = query_span(query, place, await existing_days(connection), order)
            progress = SearchProgress.start(span, order)
            reader = _Reader(connection, scope, query, clauses, progress, limit=limit)
            try:
                await reader.read_first(span)
                if clauses.indexed and not reader.is_full:
                    await connection.execute(INDEX)
                for window in windows(progress.rest, order):
                    if reader.is_full or not clock.has_time_for_more():
                        return progress
                    await reader.read(window, clock)
            except asyncpg.QueryCanceledError:
                if progress.rest == span:
                    raise
        return progress

    async def count(self, scope: Scope, query: Query, seconds: float) -> Count:
        """Count from the newest row on; if time runs out, estimate the rest from the part counted."""
        began = time.monotonic()
        clauses = Clauses(scope, query.conditions, RESERVED)
        counted = 0
        sql = _COUNT.format(conditions=clauses.sql)
        async with reading(self._database, STATEMENT_TIMEOUT, INDEX if clauses.indexed else _SCAN) as connection:
            span = query_span(query, None, await existing_days(connection))
            reached = span.high
            await connection.execute(_TIMEOUT.format(milliseconds=_milliseconds(seconds)))
            try:
                for window in windows(span):
                    if time.monotonic() - began > seconds / 2:
                        break
                    counted += cast("int", await connection.fetchval(sql, *window.values, 1, *clauses.values))
                    reached = window.low
            except asyncpg.QueryCanceledError:
                pass
        exact = reached <= span.low
        seen = Span(reached, span.high).seconds
        return Count(counted, exact, counted if exact or not seen else round(counted * span.seconds / seen))

    async def states(self, requests: Sequence[FinishedRequest]) -> Mapping[Cursor, Set[str]]:
        """Return the states of each request that has one, in quarantine and in reports."""
        ggrids, tenants = [request.ggrid for request in requests], [request.tenant for request in requests]
        async with reading(self._database, STATEMENT_TIMEOUT) as connection:
            rows = await connection.fetch(STATES_OF, ggrids, tenants)
        found = {cursor_in(row): {state for state in _IN_STATE if row[state]} for row in rows}
        return {cursor: states for cursor, states in found.items() if states}


class _Reader:
    """Reads the windows of one search into its progress."""

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        query: Query,
        clauses: Clauses,
        progress: SearchProgress,
        *,
        limit: int,
    ) -> None:
        self._connection = connection
        self._scope = scope
        self._clauses = clauses
        self._phrases = [condition for condition in query.conditions if condition.phrase]
        # Phrases are compared with the subjects first: records are a hundred times as long.
        self._by_subject = any(phrase.operator == "subject" and not phrase.negated for phrase in self._phrases)
        self._columns = "subject" if self._by_subject else "record, campaign, shared_campaign"
        self._progress = progress
        self._order = _BY_TIME[progress.order]
        self._limit = limit

    @property
    def is_full(self) -> bool:
        return len(self._progress.requests) >= self._limit

    async def read_first(self, span: Span) -> None:
        """Scan the first rows, which is enough for frequent terms and for a short history."""
        if span.is_empty:
            return
        first, size = max(NEWEST, 2 * self._limit), self._batch_size
        sql = _SELECT_FIRST.format(columns=self._columns, conditions=self._clauses.sql, first=first, order=self._order)
        rows = await self._fetch(sql, span, size)
        await self._take(rows)
        if len(rows) < size and not self.is_full:
            sql = _SELECT_LAST_SCANNED.format(order=self._order)
            last = await self._connection.fetchrow(sql, *span.values, first - 1)
            if last is None:
                self._progress.finish(span)
            else:
                self._progress.reached = behind(cursor_in(last), self._progress.order)

    async def read(self, window: Span, clock: SearchClock) -> None:
        """Read a window to its end, until the limit is reached or the time is up."""
        sql = _SELECT.format(columns=self._columns, conditions=self._clauses.sql, order=self._order)
        part = SearchProgress.start(window, self._progress.order)
        while True:
            size = self._batch_size
            rows = await self._fetch(sql, part.rest, size)
            await self._take(rows)
            if self.is_full:
                return
            if len(rows) < size:
                self._progress.finish(window)
                return
            if not clock.has_time_for_more():
                return
            part.reached = self._progress.reached

    @property
    def _batch_size(self) -> int:
        if self._by_subject:
            return _COMPARED
        return max(self._limit, _DECODED) if self._phrases else self._limit - len(self._progress.requests)

    async def _fetch(self, sql: str, span: Span, size: int) -> Sequence[Row]:
        return await self._connection.fetch(sql, *span.values, size, *self._clauses.values)

    async def _take(self, rows: Sequence[Row]) -> None:
        """Add rows until the limit is reached; the last row read is how far the search came."""
        step = _COMPARED if self._by_subject else _DECODED
        for start in range(0, len(rows), step):
            await asyncio.sleep(0)
            some = rows[start : start + step]
            records = await self._records(some) if self._by_subject else records_in(some)
            for row in some:
                if self.is_full:
                    return
                cursor = cursor_in(row)
                self._progress.reached = behind(cursor, self._progress.order)
                # The statement filters by tenant; this is the second check.
                record = records.get(cursor) if self._scope.allows(cursor.tenant) else None
                if record is not None:
                    self._add(record.request)

    async def _records(self, rows: Sequence[Row]) -> dict[Cursor, StoredRecord]:
        """Return the records of the rows whose subject may contain the phrases."""
        cursors = [cursor_in(row) for row in rows if subject_may_match(self._phrases, str(row["subject"]))]
        return await fetch_records(self._connection, self._scope, cursors) if cursors else {}

    def _add(self, request: FinishedRequest) -> None:
        if not self._phrases or phrases_match(self._phrases, request):
            self._progress.requests.append(request)
