"""What every keeper of history promises; PostgreSQL is one, a column store can be another."""

from collections.abc import Sequence
from datetime import date
from typing import Protocol
from uuid import UUID

from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope


class HistoryStore(Protocol):
    """Keeps finished guard requests by their ggrid, and shows a scope its own rows only."""

    async def save(self, scope: Scope, requests: Sequence[FinishedRequest]) -> int:
        """Keep the requests and return how many are kept now; one that is kept already counts and is not changed.

        A request that cannot be kept does not stop the others. Raise StorageUnavailable where none was looked at.
        """

    async def find(self, scope: Scope, ggrid: UUID) -> FinishedRequest | None:
        """Return the request, or None where the scope has none of that id."""

    async def forget(self, scope: Scope, before: date) -> int:
        """Forget whole days before the given one and return how many; only the whole deployment may."""
