"""The scope of a stored record (one tenant, or the whole deployment), and the actor of an audit event."""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct


class Scope(Struct, frozen=True):
    """The tenants that a store may read and write: `None` is every tenant, otherwise exactly those named."""

    tenants: frozenset[UUID] | None = None

    @classmethod
    def deployment(cls) -> "Scope":
        return cls(None)

    @classmethod
    def of(cls, *tenants: UUID) -> "Scope":
        return cls(frozenset(tenants))

    def narrowed(self, tenant: UUID | None) -> "Scope":
        """Return the scope of one tenant, or this scope without one; a tenant outside gives an empty scope."""
        if tenant is None:
            return self
        return Scope.of(tenant) if self.allows(tenant) else Scope.of()

    def allows(self, tenant: UUID) -> bool:
        return self.tenants is None or tenant in self.tenants

    def uids(self) -> Sequence[UUID] | None:
        """Return the tenants as a SQL parameter: NULL is every tenant, an empty array no tenant."""
        return None if self.tenants is None else sorted(self.tenants)


class Actor(Struct, frozen=True):
    """`name` starts with the kind of the actor: `key:soar`, `cli:root`."""

    name: str
    address: str | None = None
    request_id: str = ""
