"""What every keeper of history promises; PostgreSQL is one, a column store can be another."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Protocol
from uuid import UUID

from mailwarden.history.page import Count, Cursor, Page
from mailwarden.history.query import Query
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope


class HistoryStore(Protocol):
    """Keeps finished guard requests by ggrid and tenant, and shows a scope its own rows only."""

    async def save(self, scope: Scope, requests: Sequence[FinishedRequest]) -> int:
        """Keep the requests and return how many are kept now; one that is kept already counts and is not changed.

        A request that cannot be kept does not stop the others. Raise StorageUnavailable where none was looked at.
        """

    async def find(self, scope: Scope, ggrid: UUID) -> FinishedRequest | None:
        """Return the request, or None where the scope has none of that id.

        A message with recipients of several tenants has a row for each: the most severe of the scope's is returned.
        """

    async def tenants_of(self, scope: Scope, ggrid: UUID) -> Sequence[UUID]:
        """Return the tenants of the scope that have a row of that id, the one that `find` returns first."""

    async def search(self, scope: Scope, query: Query, before: Cursor | None = None, limit: int = 50) -> Page:
        """Return the newest rows that the query asks for, older than `before`; at most MAX_ROWS of them.

        It answers within a moment: a page that is not complete says how far it looked. Raise SearchTooBroad where
        not even a part could be looked at in time.
        """

    async def candidates(
        self, scope: Scope, terms: Sequence[str], since: datetime, limit: int
    ) -> Sequence[FinishedRequest]:
        """Return the newest requests since then that have one of the terms (see history/terms.py), whole.

        Without terms, the newest of all. Fewer than `limit` may come where time ran out.
        """

    async def count(self, scope: Scope, terms: Sequence[str], since: datetime, timeout: float = 1.0) -> Count:  # noqa: ASYNC109
        """Count the requests since then that have one of the terms, for at most `timeout` seconds."""

    async def forget(self, scope: Scope, before: date) -> int:
        """Forget whole days before the given one and return how many; only the whole deployment may."""

    async def kept_days(self, scope: Scope) -> Mapping[UUID, int]:
        """Return how many days a tenant keeps its history, for those that keep less than the deployment."""

    async def forget_of_tenants(self, scope: Scope, days: Mapping[UUID, date]) -> int:
        """Forget what each tenant keeps no longer, before its own day; return how many requests went."""
