"""History in memory: for a deployment without a database, and to show what the others must do as well."""

from collections.abc import Sequence
from datetime import date
from uuid import UUID

from mailwarden.errors import GlobalScopeForbidden
from mailwarden.model.ggrid import day_of
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope

CAPACITY = 10_000


class MemoryHistoryStore:
    """A HistoryStore that keeps the newest requests and forgets all at the end of the process."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._kept: dict[UUID, FinishedRequest] = {}

    async def save(self, scope: Scope, requests: Sequence[FinishedRequest]) -> int:
        fit = [request for request in requests if scope.allows(request.tenant) and day_of(request.ggrid)]
        for request in fit:
            self._kept.setdefault(request.ggrid, request)
        while len(self._kept) > self._capacity:
            del self._kept[next(iter(self._kept))]
        return len(fit)

    async def find(self, scope: Scope, ggrid: UUID) -> FinishedRequest | None:
        found = self._kept.get(ggrid)
        return found if found is not None and scope.allows(found.tenant) else None

    async def forget(self, scope: Scope, before: date) -> int:
        if scope.tenants is not None:
            raise GlobalScopeForbidden("A day of history holds every tenant: only the whole deployment may forget it.")
        days = {ggrid: day for ggrid in self._kept if (day := day_of(ggrid)) and day < before}
        for ggrid in days:
            del self._kept[ggrid]
        return len(set(days.values()))
