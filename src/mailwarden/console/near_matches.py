"""Near matches of a search that found nothing: corrected values, fewer terms, or all times, each with matches."""

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.errors import SearchTooBroad
from mailwarden.history.store import HistoryStore
from mailwarden.model.scope import Scope
from mailwarden.search.query import Query, Tenants, parse_query
from mailwarden.search.suggestions import corrections, reductions

SECONDS = 1.0  # after which no further search is tried
MAX_SHOWN = 3  # of each kind
MAX_TRIED = 5


class NearMatches(Struct, frozen=True):
    """Searches that find messages; `compared` is how many recent messages the corrections come from."""

    compared: int = 0
    corrected: tuple[str, ...] = ()
    reduced: tuple[tuple[str, str], ...] = ()  # the term left out, and the search without it
    at_other_times: bool = False


async def find_near_matches(
    history: HistoryStore, scope: Scope, text: str, query: Query, tenants: Tenants
) -> NearMatches:
    """Return what finds messages instead of a search that found none."""
    finder = _Finder(history, scope, query, tenants)
    vocabulary = await history.vocabulary(scope)
    # Comparing takes up to 0.1 s: not in the event loop.
    proposed = await asyncio.to_thread(corrections, text, vocabulary, tenants)
    corrected = await finder.with_matches([(each, each) for each in proposed])
    at_other_times = (query.since or query.until) is not None and await finder.finds(
        replace(query, since=None, until=None)
    )
    reduced = () if corrected else await finder.with_matches(reductions(text, tenants))
    return NearMatches(vocabulary.messages, tuple(each for each, _ in corrected), reduced, at_other_times)


class _Finder:
    """Tries searches for one message each, within one time limit."""

    def __init__(self, history: HistoryStore, scope: Scope, query: Query, tenants: Tenants) -> None:
        self._history = history
        self._scope = scope
        self._query = query
        self._tenants = tenants
        self._end = asyncio.get_running_loop().time() + SECONDS

    async def finds(self, query: Query) -> bool:
        if asyncio.get_running_loop().time() > self._end:
            return False
        try:
            return bool((await self._history.search(self._scope, query, None, 1)).rows)
        except SearchTooBroad:
            return False

    async def with_matches(self, proposed: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Return the first proposals whose search, the second text, finds a message."""
        found: list[tuple[str, str]] = []
        for shown, text in proposed[:MAX_TRIED]:
            if len(found) < MAX_SHOWN:
                query = parse_query(text, since=self._query.since, until=self._query.until, tenants=self._tenants)
                if await self.finds(query):
                    found.append((shown, text))
        return tuple(found)
