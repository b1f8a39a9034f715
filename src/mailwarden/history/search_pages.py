"""Pages, orders, facets and counts over the searcher of a history store."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from mailwarden.history.spans import Searcher, behind
from mailwarden.history.store import MAX_COMPARED, MAX_COUNTED, MAX_ROWS, Cursor, Facets, Order, Page, Row
from mailwarden.model.ggrid import moment_of
from mailwarden.model.outcome import Decision
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.search.count import Count
from mailwarden.search.query import UNDECIDED, Query, any_of

SEARCH_SECONDS = 0.25  # after which a search starts no further window
CANDIDATE_SECONDS = 1.0
MAX_CANDIDATES = 20_000


class SearchPages:
    """The methods of a HistoryStore that search."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher

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
            rows = tuple(Row.of(request, scope) for request in found.requests[:limit])
            return Page(rows, next=behind(Cursor.of(rows[-1]), order))
        rows = tuple(Row.of(request, scope) for request in found.requests)
        if found.complete:
            return Page(rows)
        reached = moment_of(found.reached.ggrid)
        following = None if found.ended else found.reached
        return Page(rows, following, complete=False, searched_to=reached)

    async def _by_points(self, scope: Scope, query: Query, place: Cursor | None, limit: int) -> Page:
        """Compare the newest matches; `place` is the last row of the previous page."""
        found = await self._searcher.search(scope, query, None, MAX_COMPARED + 1, SEARCH_SECONDS)
        rows = sorted(
            (Row.of(request, scope) for request in found.requests[:MAX_COMPARED]),
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

    async def candidates(
        self, scope: Scope, terms: Sequence[str], since: datetime, limit: int
    ) -> Sequence[FinishedRequest]:
        query, limit = any_of(terms, since), max(1, min(limit, MAX_CANDIDATES))
        return (await self._searcher.search(scope, query, None, limit, CANDIDATE_SECONDS)).requests

    async def count(self, scope: Scope, terms: Sequence[str], since: datetime, timeout: float = 1.0) -> Count:  # noqa: ASYNC109
        return await self._searcher.count(scope, any_of(terms, since), timeout)
