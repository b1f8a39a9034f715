"""The tenants of this cell, for reads of ClickHouse: PostgreSQL knows which tenants moved or are arriving."""

from mailwarden.database.pool import Database
from mailwarden.database.visible import read_elsewhere
from mailwarden.model.scope import Scope


class VisibleTenants:
    """Asks PostgreSQL before each read of the whole deployment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def scope(self, scope: Scope) -> Scope:
        """Return the scope without the tenants that are in another cell; named tenants are not checked again."""
        if scope.tenants is not None:
            return scope
        async with self._database.connection() as connection:
            return Scope(hidden=await read_elsewhere(connection))
