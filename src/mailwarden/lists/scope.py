"""The scope of one list call: one tenant, or the deployment-global scope."""

from uuid import UUID

from msgspec import Struct

from mailwarden.database.scoped import GLOBAL


class ListScope(Struct, frozen=True):
    """`tenant` None is the global scope: the same lists, seen by every tenant and owned by none."""

    tenant: UUID | None = None

    @property
    def setting(self) -> str:
        """Return the scope as a transaction says it to the database."""
        return GLOBAL if self.tenant is None else str(self.tenant)

    def own(self, statement: str) -> str:
        """Return a statement with OWN as the condition, on its first value, that the index of lists can be asked by."""
        return statement.replace("OWN", "tenant IS NULL AND $1::uuid IS NULL" if self.tenant is None else "tenant = $1")
