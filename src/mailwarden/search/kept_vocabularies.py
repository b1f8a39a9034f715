"""Keeps the vocabularies of the last scopes for a minute, because every key press of a user asks for one."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from mailwarden.model.scope import Scope
from mailwarden.search.suggestions import Vocabulary

KEPT_SECONDS = 60.0
KEPT_SCOPES = 16


class KeptVocabularies:
    """`read` returns the vocabulary of a scope, or None if that takes too long."""

    def __init__(self, read: Callable[[Scope], Awaitable[Vocabulary | None]]) -> None:
        self._read = read
        self._kept: OrderedDict[frozenset[object] | None, tuple[float, Vocabulary]] = OrderedDict()

    async def get(self, scope: Scope) -> Vocabulary:
        """Return the values of the newest messages of the scope, at most a minute old."""
        if scope.tenants is not None and not scope.tenants:
            return Vocabulary()
        now = time.monotonic()
        key = None if scope.tenants is None else frozenset(scope.tenants)
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < KEPT_SECONDS:
            return kept[1]
        found = await self._read(scope)
        if found is None:
            return Vocabulary()  # which is not kept: the next request tries again
        self._kept[key] = now, found
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_SCOPES:
            self._kept.popitem(last=False)
        return found
