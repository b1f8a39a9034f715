"""History in memory: for a deployment without a database, and to show what the others must do as well."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import islice
from uuid import UUID

from mailwarden.errors import GlobalScopeForbidden
from mailwarden.history.matching import matches
from mailwarden.history.page import MAX_ROWS, Count, Cursor, Page, row_of
from mailwarden.history.query import Query, any_of
from mailwarden.model.ggrid import day_of
from mailwarden.model.outcome import severity
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope

CAPACITY = 10_000


class MemoryHistoryStore:
    """A HistoryStore that keeps the newest requests and forgets all at the end of the process."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._kept: dict[Cursor, FinishedRequest] = {}

    async def save(self, scope: Scope, requests: Sequence[FinishedRequest]) -> int:
        fit = [request for request in requests if scope.allows(request.tenant) and day_of(request.ggrid)]
        for request in fit:
            self._kept.setdefault(Cursor.of(request), request)
        while len(self._kept) > self._capacity:
            del self._kept[next(iter(self._kept))]
        return len(fit)

    async def find(self, scope: Scope, ggrid: UUID) -> FinishedRequest | None:
        return next(iter(self._of_ggrid(scope, ggrid)), None)

    async def tenants_of(self, scope: Scope, ggrid: UUID) -> Sequence[UUID]:
        return [request.tenant for request in self._of_ggrid(scope, ggrid)]

    async def search(self, scope: Scope, query: Query, before: Cursor | None = None, limit: int = 50) -> Page:
        limit = min(limit, MAX_ROWS)
        older = (request for request in self._newest(scope, query) if before is None or Cursor.of(request) < before)
        found = list(islice(older, limit + 1))
        rows = tuple(map(row_of, found[:limit]))
        return Page(rows, older=Cursor.of(rows[-1]) if len(found) > limit else None)

    async def candidates(
        self, scope: Scope, terms: Sequence[str], since: datetime, limit: int
    ) -> Sequence[FinishedRequest]:
        return list(islice(self._newest(scope, any_of(terms, since)), limit))

    async def count(self, scope: Scope, terms: Sequence[str], since: datetime, timeout: float = 1.0) -> Count:  # noqa: ASYNC109
        counted = sum(1 for _ in self._newest(scope, any_of(terms, since)))
        return Count(counted, exact=True, estimate=counted)

    async def forget(self, scope: Scope, before: date) -> int:
        if scope.tenants is not None:
            raise GlobalScopeForbidden("A day of history holds every tenant: only the whole deployment may forget it.")
        days = {place: day for place in self._kept if (day := day_of(place.ggrid)) and day < before}
        for place in days:
            del self._kept[place]
        return len(set(days.values()))

    async def kept_days(self, scope: Scope) -> Mapping[UUID, int]:
        return {}

    async def forget_of_tenants(self, scope: Scope, days: Mapping[UUID, date]) -> int:
        old = [
            Cursor.of(request)
            for request in self._kept.values()
            if request.tenant in days and scope.allows(request.tenant) and _day(request) < days[request.tenant]
        ]
        for place in old:
            del self._kept[place]
        return len(old)

    def _of_ggrid(self, scope: Scope, ggrid: UUID) -> list[FinishedRequest]:
        found = [each for each in self._kept.values() if each.ggrid == ggrid and scope.allows(each.tenant)]
        found.sort(key=lambda each: each.tenant)
        return sorted(found, key=lambda each: severity(each.ruling.decision, each.judgement.verdict), reverse=True)

    def _newest(self, scope: Scope, query: Query) -> Iterator[FinishedRequest]:
        for place in sorted(self._kept, reverse=True):
            request = self._kept[place]
            if scope.allows(request.tenant) and matches(query, request):
                yield request


def _day(request: FinishedRequest) -> date:
    return day_of(request.ggrid) or date.max
