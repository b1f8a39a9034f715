"""A scope as the statements of this room take it."""

from collections.abc import Sequence
from uuid import UUID

from mailwarden.model.scope import Scope


def uids_of(scope: Scope) -> Sequence[UUID] | None:
    """Return the scope as a parameter of SQL: NULL is every tenant, and no tenant is an empty array."""
    return None if scope.tenants is None else sorted(scope.tenants)
