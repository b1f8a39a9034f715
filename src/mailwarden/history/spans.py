"""Stretches of history as ranges of ids: an id carries its time, so a range of ids is a range of days as well."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from msgspec import Struct

from mailwarden.errors import InvalidQuery
from mailwarden.history.page import Cursor
from mailwarden.history.query import Query
from mailwarden.model.ggrid import first_ggrid, moment_of

_MOMENT = timedelta(milliseconds=1)
FIRST_WINDOW = timedelta(hours=2)
GROWTH = 3
_DAY = timedelta(days=1)


class Span(Struct, frozen=True):
    """The rows from the id `low` to before the place `high`, which may lie between the rows of one id."""

    low: UUID
    high: Cursor

    @property
    def values(self) -> tuple[date, date, UUID, UUID, UUID]:
        """Return the first and the last day, the lowest id and the place to end before, as statements take them."""
        last = _moment(self.high.ggrid)
        if self.high == Cursor(first_ggrid(last)):
            last -= _MOMENT
        return _moment(self.low).date(), last.date(), self.low, self.high.ggrid, self.high.tenant

    @property
    def is_empty(self) -> bool:
        return Cursor(self.low) >= self.high

    @property
    def seconds(self) -> float:
        """Return how long it lasts up to now: the days to come are there, and empty."""
        return max(0.0, (min(_moment(self.high.ggrid), datetime.now(UTC)) - _moment(self.low)).total_seconds())


def span_of(query: Query, before: Cursor | None, days: set[date]) -> Span:
    """Return what a query may see of the days that there are."""
    if before is not None and moment_of(before.ggrid) is None:
        raise InvalidQuery("The place to go on from is no guard request's id.")
    if not days:
        empty = first_ggrid(datetime.now(UTC))
        return Span(empty, Cursor(empty))
    low, high = first_ggrid(_start(min(days))), Cursor(first_ggrid(_start(max(days)) + _DAY))
    if query.since is not None:
        low = max(low, first_ggrid(query.since))
    if query.until is not None:
        high = min(high, Cursor(first_ggrid(query.until)))
    if before is not None:
        high = min(high, before)
    for condition in query.conditions:
        if condition.ggrid is not None and not condition.negated:
            low, high = max(low, condition.ggrid), min(high, Cursor(UUID(int=condition.ggrid.int + 1)))
    return Span(low, max(Cursor(low), high))


def windows(span: Span) -> Iterator[Span]:
    """Yield the span from its end to its beginning in windows, each GROWTH times as long as the one before."""
    step, high = FIRST_WINDOW, span.high
    now = datetime.now(UTC)
    while high > Cursor(span.low):
        low = max(first_ggrid(min(_moment(high.ggrid), now) - step), span.low)
        yield Span(low, high)
        high, step = Cursor(low), GROWTH * step


def _start(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _moment(ggrid: UUID) -> datetime:
    return moment_of(ggrid) or datetime.now(UTC)
