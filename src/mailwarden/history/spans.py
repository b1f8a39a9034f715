"""The parts of a search that every history store shares: spans of history, windows of time, progress and its clock."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from mailwarden.errors import InvalidQuery
from mailwarden.history.store import Cursor, Order
from mailwarden.model.ggrid import first_ggrid, moment_of
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.search.count import Count
from mailwarden.search.query import Condition, Query

FIRST_WINDOW = timedelta(hours=2)
GROWTH = 3
START = Cursor(UUID(int=0))
_DAY = timedelta(days=1)
_MILLISECOND = timedelta(milliseconds=1)
_CLOSED: dict[str, type[Verdict] | type[Decision]] = {"verdict": Verdict, "decision": Decision}


class Span(Struct, frozen=True):
    """The rows from the cursor `low` to before the cursor `high`; as ggrids carry their time, also a period."""

    low: Cursor
    high: Cursor

    @property
    def values(self) -> tuple[date, date, UUID, UUID, UUID, UUID]:
        """Return the parameters of a statement: first and last day, lowest ggrid, end, lowest tenant."""
        last = time_of(self.high.ggrid)
        if self.high == Cursor(first_ggrid(last)):
            last -= _MILLISECOND
        first = time_of(self.low.ggrid).date()
        return first, last.date(), self.low.ggrid, self.high.ggrid, self.high.tenant, self.low.tenant

    @property
    def is_empty(self) -> bool:
        return self.low >= self.high

    @property
    def seconds(self) -> float:
        """Return its length up to now: partitions of future days exist and are empty."""
        return max(0.0, (min(time_of(self.high.ggrid), datetime.now(UTC)) - time_of(self.low.ggrid)).total_seconds())


def query_span(query: Query, place: Cursor | None, days: set[date], order: Order = Order.NEWEST) -> Span:
    """Return the part of the existing days that a query covers, from `place` on."""
    if place is not None and moment_of(place.ggrid) is None:
        raise InvalidQuery("The cursor to continue from is not a ggrid.")
    if not days:
        empty = Cursor(first_ggrid(datetime.now(UTC)))
        return Span(empty, empty)
    low, high = Cursor(first_ggrid(start_of(min(days)))), Cursor(first_ggrid(start_of(max(days)) + _DAY))
    if query.since is not None:
        low = max(low, Cursor(first_ggrid(query.since)))
    if query.until is not None:
        high = min(high, Cursor(first_ggrid(query.until)))
    if place is not None:
        low, high = (max(low, place), high) if order is Order.OLDEST else (low, min(high, place))
    for condition in query.conditions:
        if condition.ggrid is not None and not condition.negated:
            low, high = max(low, Cursor(condition.ggrid)), min(high, Cursor(UUID(int=condition.ggrid.int + 1)))
    return Span(low, max(low, high))


def windows(
    span: Span,
    order: Order = Order.NEWEST,
    first: timedelta = FIRST_WINDOW,
    growth: Callable[[], int] = lambda: GROWTH,
) -> Iterator[Span]:
    """Yield the span in windows, in this order, each `growth` times as long as the one before."""
    step, low, high = first, span.low, span.high
    now = datetime.now(UTC)
    while high > low:
        if order is Order.OLDEST:
            end = min(Cursor(first_ggrid(time_of(low.ggrid) + step)), high)
            yield Span(low, end)
            low = end
        else:
            start = max(Cursor(first_ggrid(min(time_of(high.ggrid), now) - step)), low)
            yield Span(start, high)
            high = start
        step *= growth()


def behind(row: Cursor, order: Order) -> Cursor:
    """Return the place where the rows after this row begin: a span includes its lowest cursor, not its highest."""
    if order is Order.NEWEST:
        return row
    following = (row.ggrid.int << 128) + row.tenant.int + 1
    return Cursor(UUID(int=following >> 128), UUID(int=following % 2**128))


def start_of(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def time_of(ggrid: UUID) -> datetime:
    return moment_of(ggrid) or datetime.now(UTC)


def narrow_scope(scope: Scope, conditions: Sequence[Condition]) -> Scope:
    """Return the scope without the tenants that `tenant:` conditions exclude, without reading any row."""
    if scope.tenants is None:
        return scope
    left = set(scope.tenants)
    for condition in conditions:
        if condition.operator == "tenant":
            named = {UUID(term.partition(":")[2]) for group in condition.groups for term in group}
            left = left - named if condition.negated else left & named
    return Scope(frozenset(left))


def expand_negation(condition: Condition) -> Condition:
    """Rewrite `-verdict:clean` as all other verdicts: an index finds present terms, not absent ones."""
    members = _CLOSED.get(condition.operator)
    if members is None or not condition.negated:
        return condition
    others = {f"{condition.operator}:{member}" for member in members}.difference(*condition.groups)
    return Condition(condition.operator, condition.value, (tuple(sorted(others)),))


class SearchProgress(Struct):
    """The requests found so far, in order; the search has read every row of the span up to `reached`."""

    requests: list[FinishedRequest]
    reached: Cursor
    span: Span
    order: Order = Order.NEWEST
    stale: bool = False  # the store may lack the newest rows

    @classmethod
    def start(cls, span: Span, order: Order = Order.NEWEST) -> "SearchProgress":
        return cls([], span.low if order is Order.OLDEST else span.high, span, order)

    @property
    def ended(self) -> bool:
        return self.rest.is_empty

    @property
    def complete(self) -> bool:
        return self.ended and not self.stale

    @property
    def rest(self) -> Span:
        """The rows that are not read yet."""
        if self.order is Order.NEWEST:
            return Span(self.span.low, self.reached)
        return Span(self.reached, self.span.high)

    def finish(self, window: Span) -> None:
        """Note that a window was read to its end."""
        self.reached = window.high if self.order is Order.OLDEST else window.low


class SearchClock:
    """The time limit of a search; the next window is expected to take `growth` times as long as the last.

    With `quick`, a window that took less than these seconds is followed by one that is expected to take as long as
    that, and is at most `most` times as long.
    """

    def __init__(self, seconds: float, *, quick: float = 0.0, most: int = GROWTH) -> None:
        self._last = time.monotonic()
        self._end = self._last + seconds
        self._quick, self._most = quick, most
        self.growth = GROWTH

    def has_time_for_more(self) -> bool:
        now = time.monotonic()
        self._last, took = now, now - self._last
        self.growth = max(GROWTH, min(self._most, int(self._quick / max(took, 0.001))))
        return now + self.growth * took < self._end


class Searcher(Protocol):
    """Reads the matches of a query from one store."""

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

    async def count(self, scope: Scope, query: Query, seconds: float) -> Count:
        """Count from the newest row on; if time runs out, estimate the rest from the part counted."""

    async def states(self, requests: Sequence[FinishedRequest]) -> Mapping[Cursor, Set[str]]:
        """Return the states of each request that has one, in quarantine and in reports."""
