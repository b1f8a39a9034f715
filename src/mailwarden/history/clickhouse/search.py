"""Searches history in ClickHouse: in the order of time, in windows that grow, within a time limit.

Statements find the keys of the matches by narrow columns; the records of a page are fetched by key at the end and
checked once more. So a row that is repeated until its parts are merged is found once, by the version that stays. A
search reads one replica; if another one has to answer and lacks a row, the search stops before that row. A call costs
more than the rows of a small window: a window that was quick is followed by a much longer one. States of messages are
in PostgreSQL: a search for a state starts with the messages that have it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, timedelta
from uuid import UUID

from mailwarden.errors import SearchTooBroad, StorageUnavailable
from mailwarden.history.clickhouse.binary import Reader, day_literal, key_literal, list_literal, read_one, read_rows
from mailwarden.history.clickhouse.clauses import (
    conditions_clause,
    hours_literal,
    keys_literal,
    scope_clause,
    span_clause,
)
from mailwarden.history.clickhouse.client import RETRY_AFTER, Clickhouse, Reads, TooSlow
from mailwarden.history.clickhouse.schema import NO_CAMPAIGN, KnownDays
from mailwarden.history.postgresql.states import StateReader, StatesTooSlow
from mailwarden.history.spans import (
    START,
    SearchClock,
    SearchProgress,
    Span,
    behind,
    expand_negation,
    narrow_scope,
    query_span,
    time_of,
    windows,
)
from mailwarden.history.store import Cursor, Order, StoredRecord
from mailwarden.model.record import CampaignIds, FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.search.count import Count
from mailwarden.search.query import Condition, Query, condition_matches
from mailwarden.search.terms import terms_of

STATEMENT_SECONDS = 2.0
FIRST_WINDOW = timedelta(hours=1)
QUICK_SECONDS = 0.15  # that a window should take
MOST_GROWTH = 30  # how many times longer than the one before a window may be
FETCHED = 500  # records of one statement
MORE_KEYS = 200  # of a batch in which phrases or states may not match
_DECODED = 100  # records between two yields to the event loop
_BY_TIME = {Order.NEWEST: "ORDER BY ggrid DESC, tenant DESC", Order.OLDEST: "ORDER BY ggrid, tenant"}
# A key may come several times until its parts are merged: without LIMIT BY the server keeps the first keys only, and
# need not sort all matches.
_KEYS = "SELECT ggrid, tenant FROM history WHERE {span} AND {conditions} {order} LIMIT {limit} FORMAT RowBinary"
_COUNT = "SELECT uniqExact(ggrid, tenant) FROM history WHERE {span} AND {conditions} FORMAT RowBinary"
# PREWHERE: the wide column is read where a key matches.
_RECORDS = """
SELECT ggrid, tenant, record, campaign, shared_campaign FROM history PREWHERE {keys} WHERE day IN ({days}) AND {scope}
ORDER BY ggrid, tenant, version DESC LIMIT 1 BY ggrid, tenant FORMAT RowBinary
"""


class ClickhouseSearcher:
    """Runs searches; `states` are those of quarantine and reports."""

    def __init__(self, clickhouse: Clickhouse, states: StateReader, days: KnownDays) -> None:
        self._clickhouse = clickhouse
        self._states = states
        self._days = days

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
        span = query_span(query, place, await self._days.read(STATEMENT_SECONDS), order)
        clock = SearchClock(seconds, quick=QUICK_SECONDS, most=MOST_GROWTH)
        progress = SearchProgress.start(span, order)
        search = _Search(self._clickhouse, self._states, scope, query, progress=progress, limit=limit)
        try:
            await search.run(clock)
        except (TooSlow, StatesTooSlow):
            if search.progress.rest == span:
                raise SearchTooBroad("This search takes too long: narrow the time range, or add a term.") from None
        if search.lacks_row and search.progress.rest == span:
            raise StorageUnavailable(
                "A server of the history store lacks a row that another one has.", retry_after=RETRY_AFTER
            )
        return search.progress

    async def count(self, scope: Scope, query: Query, seconds: float) -> Count:
        """Count from the newest row on; if time runs out, estimate the rest from the part counted."""
        if any(condition.state for condition in query.conditions):
            return Count(0, exact=False, estimate=0)  # states are in PostgreSQL: the count would be of all messages
        counted, reads = 0, Reads()
        conditions = conditions_clause(scope, query.conditions)
        span = query_span(query, None, await self._days.read(STATEMENT_SECONDS))
        reached = span.high
        clock = SearchClock(1.5 * seconds, quick=QUICK_SECONDS, most=MOST_GROWTH)  # a statement ends by itself
        try:
            for window in windows(span, growth=lambda: clock.growth):
                sql = _COUNT.format(span=span_clause(window), conditions=conditions)
                counted += read_one(await self._clickhouse.read_limited(sql, seconds, reads), Reader.uint64)
                reached = window.low
                if not clock.has_time_for_more():
                    break
        except TooSlow:
            pass
        ended, seen = reached <= span.low, Span(reached, span.high).seconds
        estimate = counted if ended or not seen else round(counted * span.seconds / seen)
        return Count(counted, ended and not reads.stale, estimate)

    async def states(self, requests: Sequence[FinishedRequest]) -> Mapping[Cursor, Set[str]]:
        try:
            return await self._states.of(list(map(Cursor.of, requests)))
        except StatesTooSlow:
            raise SearchTooBroad("Counting these messages takes too long.") from None


class _Search:
    """One search, window by window, into its progress."""

    def __init__(
        self,
        clickhouse: Clickhouse,
        states: StateReader,
        scope: Scope,
        query: Query,
        *,
        progress: SearchProgress,
        limit: int,
    ) -> None:
        self._clickhouse = clickhouse
        self._state_reader = states
        self._scope = scope
        self._conditions = tuple(map(expand_negation, query.conditions))
        self._sql = conditions_clause(scope, query.conditions)
        # A state that rows must have leads to them; one that rows must not have is checked afterwards.
        self._states = [each for each in query.conditions if each.state]
        self._leading = next((state.state for state in self._states if not state.negated), "")
        self._checks_more = bool(self._states) or any(condition.phrase for condition in query.conditions)
        self.progress = progress
        self._limit = limit
        self._keys: list[Cursor] = []  # of matches whose records are not fetched yet
        self._reached = progress.reached  # how far keys were read
        self._reads = Reads()
        self.lacks_row = False  # the replica that has to answer now lacks the next row

    @property
    def _ends(self) -> bool:
        return self.lacks_row or len(self.progress.requests) >= self._limit

    async def run(self, clock: SearchClock) -> None:
        try:
            await self._read(clock)
            await self._fetch()
        finally:
            self.progress.stale = self._reads.stale

    async def _read(self, clock: SearchClock) -> None:
        """Read the keys of the windows until there are enough matches or the time is up."""
        for window in windows(self.progress.rest, self.progress.order, FIRST_WINDOW, lambda: clock.growth):
            part = SearchProgress.start(window, self.progress.order)
            while not part.rest.is_empty:
                missing = self._limit - len(self.progress.requests) - len(self._keys)
                size = max(missing, MORE_KEYS) if self._checks_more else missing
                try:
                    keys = await self._keys_of(part.rest, size)
                except (TooSlow, StatesTooSlow):
                    await self._fetch()
                    raise
                if len(keys) < size:
                    part.finish(window)
                else:
                    part.reached = behind(keys[-1], self.progress.order)
                self._keys += dict.fromkeys(keys)
                self._reached = part.reached
                if self._checks_more or len(self.progress.requests) + len(self._keys) >= self._limit:
                    await self._fetch()
                if self._ends or not clock.has_time_for_more():
                    return

    async def _keys_of(self, span: Span, size: int) -> Sequence[Cursor]:
        """Return the first keys of the matches in order; a key may come several times."""
        if self._leading:
            # The keys come from PostgreSQL; `_take` fetches and checks them.
            return await self._state_reader.cursors(self._scope, self._leading, span, size, self.progress.order)
        sql = _KEYS.format(
            span=span_clause(span), conditions=self._sql, order=_BY_TIME[self.progress.order], limit=size
        )
        return read_rows(await self._clickhouse.read_limited(sql, STATEMENT_SECONDS, self._reads), read_cursor)

    async def _fetch(self) -> None:
        """Add the matches among the keys read so far; then everything up to there is read.

        If this fails, `progress.reached` stays in front of the keys without records.
        """
        await self._take(self._keys)
        self._keys = []
        if not self._ends:
            self.progress.reached = self._reached

    async def _take(self, cursors: Sequence[Cursor]) -> None:
        """Add the matches among these keys until the limit is reached."""
        step = FETCHED if len(cursors) > FETCHED else max(1, len(cursors))
        for start in range(0, len(cursors), step):
            some = cursors[start : start + step]
            records = await fetch_records(self._clickhouse, self._scope, some, reads=self._reads)
            states = await self._state_reader.of(some) if self._states else {}
            for number, cursor in enumerate(some):
                if number % _DECODED == 0:
                    await asyncio.sleep(0)
                if self._ends:
                    return
                record = records.get(cursor)
                # A key whose row was deleted meanwhile has no record; the next search does not find such a key.
                if record is None and self._reads.moved and not self._leading:
                    self.lacks_row = True
                    return
                self.progress.reached = behind(cursor, self.progress.order)
                if record is not None and self._scope.allows(cursor.tenant):
                    request = record.request
                    if self._matches(request, states.get(cursor, frozenset())):
                        self.progress.requests.append(request)

    def _matches(self, request: FinishedRequest, states: Set[str]) -> bool:
        found = frozenset(terms_of(request))
        return all(_matches(condition, found, request, states) for condition in self._conditions)


def _matches(condition: Condition, found: Set[str], request: FinishedRequest, states: Set[str]) -> bool:
    if condition.state:
        return (condition.state in states) is not condition.negated
    return condition_matches(condition, found, request)


async def fetch_records(
    clickhouse: Clickhouse,
    scope: Scope,
    cursors: Sequence[Cursor],
    seconds: float = STATEMENT_SECONDS,
    *,
    reads: Reads | None = None,
) -> dict[Cursor, StoredRecord]:
    """Return the records of these keys that exist in the scope; with `reads`, raise TooSlow after so many seconds."""
    if not cursors:
        return {}
    keys = f"(hour, tenant, ggrid) IN ({keys_literal(cursors)})"
    return await _fetch(
        clickhouse, scope, keys, {time_of(cursor.ggrid).date() for cursor in cursors}, seconds, reads=reads
    )


async def fetch_of_ggrid(clickhouse: Clickhouse, scope: Scope, ggrid: UUID) -> dict[Cursor, StoredRecord]:
    """Return the records of a ggrid that exist in the scope: one for each tenant."""
    keys = f"hour = {hours_literal([ggrid])} AND ggrid = {key_literal(ggrid)}"
    return await _fetch(clickhouse, scope, keys, {time_of(ggrid).date()}, STATEMENT_SECONDS)


async def _fetch(
    clickhouse: Clickhouse, scope: Scope, keys: str, days: Set[date], seconds: float, *, reads: Reads | None = None
) -> dict[Cursor, StoredRecord]:
    among = list_literal(map(day_literal, sorted(days)))
    sql = _RECORDS.format(keys=keys, days=among, scope=scope_clause(scope))
    answer = clickhouse.read(sql, seconds) if reads is None else clickhouse.read_limited(sql, seconds, reads)
    return {cursor: record for cursor, record in _read_record(await answer) if scope.allows(cursor.tenant)}


def _read_record(data: bytes) -> Iterator[tuple[Cursor, StoredRecord]]:
    reader = Reader(data)
    while not reader.is_at_end:
        cursor, record, own, shared = read_cursor(reader), reader.raw(), reader.uuid(), reader.uuid()
        yield cursor, StoredRecord(record, None if own == NO_CAMPAIGN else CampaignIds(own, shared))


def read_cursor(reader: Reader) -> Cursor:
    return Cursor(reader.uuid(), reader.uuid())
