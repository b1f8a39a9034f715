"""The salt of the sender history: with the same one in all cells, a tenant keeps its sender history when it moves."""

from typing import cast

from mailwarden.cells.store import DirectoryStore
from mailwarden.database.pool import Database

_SALT = "SELECT salt FROM relationship_salt FOR UPDATE"
_USED = "SELECT EXISTS (SELECT FROM relationships) OR EXISTS (SELECT FROM domain_memory)"
_REPLACE = "UPDATE relationship_salt SET salt = $1"


async def adopt_salt(database: Database, directory: DirectoryStore) -> str:
    """Use the fleet's salt in this cell, or make this cell's the fleet's; return what was done.

    A cell that has a sender history keeps its salt: its history would be unreadable with another one.
    """
    async with database.connection() as connection, connection.transaction():
        own = cast("bytes", await connection.fetchval(_SALT))
        fleet = await directory.offer_salt(own)
        if fleet == own:
            return "This cell has the fleet's salt."
        if await connection.fetchval(_USED):
            return "This cell keeps its own salt, as it has a sender history. Tenants that move leave theirs behind."
        await connection.execute(_REPLACE, fleet)
    return "This cell has the fleet's salt now. Restart its guards if they run."
