"""Searches history in PostgreSQL: newest first, over as little of it as the answer needs, and never for long.

What is frequent is found by walking back over the newest rows; what is rare by the index of terms, in windows of
days that double. Between two windows the clock is looked at: a search that takes long answers what it has, and how
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
from mailwarden.history.clauses import Clauses
from mailwarden.history.matching import phrases_hold
from mailwarden.history.page import Count
from mailwarden.history.partitions import days_kept
from mailwarden.history.query import Query
from mailwarden.history.records import decode
from mailwarden.history.spans import Span, span_of, windows
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope

STATEMENT_TIMEOUT = 2.0
NEWEST = 4_000  # rows that are walked over before the index is asked
_BATCH = 500  # rows that are decoded, or asked for where words side by side are looked for, before others get a turn
_RESERVED = 5

_SELECT = """
SELECT tenant, ggrid, record FROM history
WHERE day BETWEEN $1 AND $2 AND ggrid >= $3 AND ggrid < $4 AND {conditions}
ORDER BY day DESC, ggrid DESC LIMIT $5
"""
_SELECT_NEWEST = """
SELECT tenant, ggrid, record FROM (
    SELECT * FROM history WHERE day BETWEEN $1 AND $2 AND ggrid >= $3 AND ggrid < $4
    ORDER BY day DESC, ggrid DESC LIMIT {newest}
) AS newest WHERE {conditions} LIMIT $5
"""
_COUNT = """
SELECT count(*) FROM history WHERE day BETWEEN $1 AND $2 AND ggrid >= $3 AND ggrid < $4 AND {conditions} LIMIT $5
"""
_BEGIN = "SET LOCAL statement_timeout = {milliseconds}; SET LOCAL plan_cache_mode = force_custom_plan; {way}"
_WALK = "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = on"
_INDEX = "SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off"


class Found(Struct):
    """What a search met so far, newest first; everything from `reached` on has been looked at."""

    requests: list[FinishedRequest]
    reached: UUID
    complete: bool = False


class Searcher:
    """Each search is one snapshot that cannot write."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(self, scope: Scope, query: Query, before: UUID | None, limit: int, seconds: float) -> Found:
        """Return the newest requests older than `before`; after `seconds` no further window is begun."""
        began = time.monotonic()
        clauses = Clauses(scope, query.conditions, _RESERVED)
        async with self._reading(STATEMENT_TIMEOUT) as connection:
            span = span_of(query, before, await days_kept(connection))
            found = Found([], span.high, span.is_empty)
            reader = _Reader(connection, scope, query, clauses, found, limit=limit)
            try:
                await reader.read_newest(span)
                if clauses.indexed and not reader.is_full:
                    await connection.execute(_INDEX)
                for window in windows(Span(span.low, found.reached), by_days=clauses.indexed):
                    if reader.is_full or time.monotonic() - began > seconds:
                        return found
                    await reader.read(window)
                    found.complete = window.low <= span.low and not reader.is_full
            except asyncpg.QueryCanceledError:
                if found.reached == span.high:
                    raise SearchTooBroad("This search takes too long: narrow the time range, or add a term.") from None
        return found

    async def count(self, scope: Scope, query: Query, seconds: float) -> Count:
        """Count from the newest on; where time runs out, estimate the rest from the part that was counted."""
        began = time.monotonic()
        clauses = Clauses(scope, query.conditions, _RESERVED)
        counted, seen = 0, 0.0
        sql = _COUNT.format(conditions=clauses.sql)
        async with self._reading(seconds, _INDEX if clauses.indexed else _WALK) as connection:
            span = span_of(query, None, await days_kept(connection))
            whole = span.seconds
            try:
                for window in windows(span, by_days=True):
                    if time.monotonic() - began > seconds / 2:
                        break
                    counted += cast("int", await connection.fetchval(sql, *window.values, 1, *clauses.values))
                    seen += window.seconds
            except asyncpg.QueryCanceledError:
                pass
        exact = seen >= whole
        return Count(counted, exact, counted if exact or not seen else round(counted * whole / seen))

    @asynccontextmanager
    async def _reading(self, seconds: float, way: str = _WALK) -> AsyncIterator[Connection]:
        first = _BEGIN.format(milliseconds=max(1, int(seconds * 1000)), way=way)
        async with (
            self._database.connection() as connection,
            scoped(connection, EVERYTHING, snapshot=True, first=first),
        ):
            yield connection


class _Reader:
    """Reads windows of one search into what was found."""

    def __init__(
        self, connection: Connection, scope: Scope, query: Query, clauses: Clauses, found: Found, *, limit: int
    ) -> None:
        self._connection = connection
        self._scope = scope
        self._clauses = clauses
        self._phrases = [condition for condition in query.conditions if condition.phrase]
        self._found = found
        self._limit = limit

    @property
    def is_full(self) -> bool:
        return len(self._found.requests) >= self._limit

    async def read_newest(self, span: Span) -> None:
        """Walk back over the newest rows; what is frequent needs no more."""
        if not span.is_empty:
            sql = _SELECT_NEWEST.format(conditions=self._clauses.sql, newest=max(NEWEST, 2 * self._limit))
            rows = await self._connection.fetch(sql, *span.values, self._asked(), *self._clauses.values)
            await self._take(rows)

    async def read(self, window: Span) -> None:
        """Read a window to its beginning, or until enough was found."""
        sql = _SELECT.format(conditions=self._clauses.sql)
        while not self.is_full:
            asked = self._asked()
            rows = await self._connection.fetch(sql, *window.values, asked, *self._clauses.values)
            await self._take(rows)
            if len(rows) < asked:
                break
            window = Span(window.low, cast("UUID", rows[-1]["ggrid"]))
        if not self.is_full:
            self._found.reached = window.low

    def _asked(self) -> int:
        return max(_BATCH, self._limit) if self._phrases else self._limit - len(self._found.requests)

    async def _take(self, rows: Sequence[Row]) -> None:
        for number, row in enumerate(rows, 1):
            if self.is_full:
                return
            if number % _BATCH == 0:
                await asyncio.sleep(0)
            # The statement names the scope's tenants; this is the second wall between them.
            if self._scope.allows(cast("UUID", row["tenant"])):
                request = decode(cast("bytes", row["record"]))
                if not self._phrases or phrases_hold(self._phrases, request):
                    self._found.requests.append(request)
            self._found.reached = cast("UUID", row["ggrid"])
