"""Searches history in PostgreSQL: newest first, over as little of it as the answer needs, and never for long.

What is frequent is found by walking back over the newest rows; what is rare by the index of terms, in windows that
grow. Between two windows the clock is looked at: a search that takes long answers what it has, and how
far it came. The planner is told which of the two ways to go, for it cannot know how terms go together.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast
from uuid import UUID

import asyncpg
from msgspec import Struct

from mailwarden.database.pool import Connection, Database, Row
from mailwarden.database.scoped import EVERYTHING, scoped
from mailwarden.errors import SearchTooBroad
from mailwarden.history.clauses import Clauses, narrowed
from mailwarden.history.matching import phrases_hold, subject_fits
from mailwarden.history.page import Count, Cursor
from mailwarden.history.partitions import days_kept
from mailwarden.history.query import Query
from mailwarden.history.records import decode
from mailwarden.history.spans import GROWTH, Span, span_of, windows
from mailwarden.model.ggrid import day_of
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope

STATEMENT_TIMEOUT = 2.0
NEWEST = 4_000  # rows that are walked over before the index is asked
_DECODED = 200  # records, before other work gets its turn
_COMPARED = 2_000  # subjects that are asked for at once where words must stand side by side
_RESERVED = 6
_NOWHERE = Cursor(UUID(int=0))

_SELECT = """
SELECT tenant, ggrid, {columns} FROM history
WHERE day BETWEEN $1 AND $2 AND ggrid >= $3
  AND ggrid <= $4 AND (ggrid, tenant) < ($4, $5) AND {conditions}
ORDER BY day DESC, ggrid DESC, tenant DESC LIMIT $6
"""
_SELECT_NEWEST = """
SELECT tenant, ggrid, {columns} FROM (
    SELECT * FROM history WHERE day BETWEEN $1 AND $2 AND ggrid >= $3
  AND ggrid <= $4 AND (ggrid, tenant) < ($4, $5)
    ORDER BY day DESC, ggrid DESC, tenant DESC LIMIT {newest}
) AS newest WHERE {conditions} LIMIT $6
"""
# The last of the rows that were walked over: where there is none, they were all there are.
_SELECT_LAST_OF_NEWEST = """
SELECT ggrid, tenant FROM history WHERE day BETWEEN $1 AND $2 AND ggrid >= $3
  AND ggrid <= $4 AND (ggrid, tenant) < ($4, $5)
ORDER BY day DESC, ggrid DESC, tenant DESC OFFSET $6 LIMIT 1
"""
_SELECT_RECORDS = """
SELECT tenant, ggrid, record FROM history
WHERE day = ANY($1::date[]) AND ggrid = ANY($2::uuid[])
  AND (ggrid, tenant) IN (SELECT * FROM unnest($2::uuid[], $3::uuid[]))
"""
_COUNT = """
SELECT count(*) FROM history WHERE day BETWEEN $1 AND $2 AND ggrid >= $3
  AND ggrid <= $4 AND (ggrid, tenant) < ($4, $5) AND {conditions} LIMIT $6
"""
_BEGIN = "SET LOCAL statement_timeout = {milliseconds}; SET LOCAL plan_cache_mode = force_custom_plan; {way}"
_WALK = "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = on"
_INDEX = "SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off"


class Found(Struct):
    """What a search met so far, newest first; everything from `reached` on has been looked at."""

    requests: list[FinishedRequest]
    reached: Cursor
    end: Cursor

    @property
    def complete(self) -> bool:
        return self.reached <= self.end


class Searcher:
    """Each search is one snapshot that cannot write."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(self, scope: Scope, query: Query, before: Cursor | None, limit: int, seconds: float) -> Found:
        """Return the newest requests older than `before`, for about so many seconds."""
        scope = narrowed(scope, query.conditions)
        if scope.tenants is not None and not scope.tenants:
            return Found([], _NOWHERE, _NOWHERE)
        clauses = Clauses(scope, query.conditions, _RESERVED)
        clock = _Clock(seconds)
        async with self._reading(STATEMENT_TIMEOUT) as connection:
            span = span_of(query, before, await days_kept(connection))
            found = Found([], span.high, Cursor(span.low))
            reader = _Reader(connection, scope, query, clauses, found, limit=limit)
            try:
                await reader.read_newest(span)
                if clauses.indexed and not reader.is_full:
                    await connection.execute(_INDEX)
                for window in windows(Span(span.low, found.reached)):
                    if reader.is_full or not clock.has_time_for_more():
                        return found
                    await reader.read(window, clock)
            except asyncpg.QueryCanceledError:
                if found.reached == span.high:
                    raise SearchTooBroad("This search takes too long: narrow the time range, or add a term.") from None
        return found

    async def count(self, scope: Scope, query: Query, seconds: float) -> Count:
        """Count from the newest on; where time runs out, estimate the rest from the part that was counted."""
        began = time.monotonic()
        clauses = Clauses(scope, query.conditions, _RESERVED)
        counted = 0
        sql = _COUNT.format(conditions=clauses.sql)
        async with self._reading(seconds, _INDEX if clauses.indexed else _WALK) as connection:
            span = span_of(query, None, await days_kept(connection))
            reached = span.high
            try:
                for window in windows(span):
                    if time.monotonic() - began > seconds / 2:
                        break
                    counted += cast("int", await connection.fetchval(sql, *window.values, 1, *clauses.values))
                    reached = Cursor(window.low)
            except asyncpg.QueryCanceledError:
                pass
        exact = reached <= Cursor(span.low)
        seen = Span(reached.ggrid, span.high).seconds
        return Count(counted, exact, counted if exact or not seen else round(counted * span.seconds / seen))

    @asynccontextmanager
    async def _reading(self, seconds: float, way: str = _WALK) -> AsyncIterator[Connection]:
        first = _BEGIN.format(milliseconds=max(1, int(seconds * 1000)), way=way)
        async with (
            self._database.connection() as connection,
            scoped(connection, EVERYTHING, snapshot=True, first=first),
        ):
            yield connection


class _Clock:
    """Knows when to stop: windows grow, and the next one takes as much longer than the last."""

    def __init__(self, seconds: float) -> None:
        self._last = time.monotonic()
        self._end = self._last + seconds

    def has_time_for_more(self) -> bool:
        now = time.monotonic()
        self._last, took = now, now - self._last
        return now + GROWTH * took < self._end


class _Reader:
    """Reads windows of one search into what was found."""

    def __init__(
        self, connection: Connection, scope: Scope, query: Query, clauses: Clauses, found: Found, *, limit: int
    ) -> None:
        self._connection = connection
        self._scope = scope
        self._clauses = clauses
        self._phrases = [condition for condition in query.conditions if condition.phrase]
        # Words side by side are looked for in the subjects first: records are a hundred times as long.
        self._by_subject = any(each.operator == "subject" and not each.negated for each in self._phrases)
        self._columns = "subject" if self._by_subject else "record"
        self._found = found
        self._limit = limit

    @property
    def is_full(self) -> bool:
        return len(self._found.requests) >= self._limit

    async def read_newest(self, span: Span) -> None:
        """Walk back over the newest rows; what is frequent needs no more, and a short history has no more."""
        if span.is_empty:
            return
        newest, asked = max(NEWEST, 2 * self._limit), self._asked
        sql = _SELECT_NEWEST.format(columns=self._columns, conditions=self._clauses.sql, newest=newest)
        rows = await self._fetch(sql, span, asked)
        await self._take(rows)
        if len(rows) < asked and not self.is_full:
            last = await self._connection.fetchrow(_SELECT_LAST_OF_NEWEST, *span.values, newest - 1)
            self._found.reached = Cursor(span.low) if last is None else _place(last)

    async def read(self, window: Span, clock: _Clock) -> None:
        """Read a window to its beginning, until enough was found, or until time is up."""
        sql = _SELECT.format(columns=self._columns, conditions=self._clauses.sql)
        while True:
            asked = self._asked
            rows = await self._fetch(sql, window, asked)
            await self._take(rows)
            if self.is_full:
                return
            if len(rows) < asked:
                self._found.reached = Cursor(window.low)
                return
            if not clock.has_time_for_more():
                return
            window = Span(window.low, self._found.reached)

    @property
    def _asked(self) -> int:
        if self._by_subject:
            return _COMPARED
        return self._limit - (0 if self._phrases else len(self._found.requests))

    async def _fetch(self, sql: str, span: Span, asked: int) -> Sequence[Row]:
        return await self._connection.fetch(sql, *span.values, asked, *self._clauses.values)

    async def _take(self, rows: Sequence[Row]) -> None:
        """Take rows until enough was found; the last one looked at is how far the search came."""
        step = _COMPARED if self._by_subject else _DECODED
        for start in range(0, len(rows), step):
            await asyncio.sleep(0)
            some = rows[start : start + step]
            records = await self._records(some) if self._by_subject else _by_place(some)
            for row in some:
                if self.is_full:
                    return
                self._found.reached = _place(row)
                # The statement names the scope's tenants; this is the second wall between them.
                record = records.get(self._found.reached) if self._scope.allows(self._found.reached.tenant) else None
                if record is not None:
                    self._add(decode(record))

    async def _records(self, rows: Sequence[Row]) -> dict[Cursor, bytes]:
        """Return the records of those rows whose subject has the words as they were asked for."""
        wanted = [_place(row) for row in rows if subject_fits(self._phrases, str(row["subject"]))]
        if not wanted:
            return {}
        ggrids, tenants = [place.ggrid for place in wanted], [place.tenant for place in wanted]
        days = list({day_of(ggrid) for ggrid in ggrids})
        return _by_place(await self._connection.fetch(_SELECT_RECORDS, days, ggrids, tenants))

    def _add(self, request: FinishedRequest) -> None:
        if not self._phrases or phrases_hold(self._phrases, request):
            self._found.requests.append(request)


def _by_place(rows: Sequence[Row]) -> dict[Cursor, bytes]:
    return {_place(row): cast("bytes", row["record"]) for row in rows}


def _place(row: Row) -> Cursor:
    return Cursor(cast("UUID", row["ggrid"]), cast("UUID", row["tenant"]))
