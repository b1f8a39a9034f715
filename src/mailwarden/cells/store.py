"""The directory of cells in PostgreSQL: every abby reads it; cells write their own tenants, and so does a move."""

from collections.abc import Mapping, Sequence
from typing import cast
from uuid import UUID

from msgspec import Struct

from mailwarden.cells.snapshot import DirectoryChanges, Place
from mailwarden.database.pool import Connection, Database

_VERSION = "SELECT version FROM cell_directory"
_NEXT = "UPDATE cell_directory SET version = version + 1 RETURNING version"
_TENANTS = "SELECT tenant, cell, version FROM cell_tenants WHERE changed > $1"
_DOMAINS = "SELECT domain, tenant FROM cell_domains WHERE changed > $1"
_KEYS = "SELECT key_id, cell FROM cell_keys WHERE changed > $1"
_PLACE = "SELECT cell, version FROM cell_tenants WHERE tenant = $1"
# A restored directory may be older than the cells: the place with the higher version is right.
_PUT_TENANTS = """
INSERT INTO cell_tenants AS known (tenant, cell, version, changed)
SELECT tenant, $1, version, $2 FROM unnest($3::uuid[], $4::bigint[]) AS given (tenant, version)
ON CONFLICT (tenant) DO UPDATE SET cell = EXCLUDED.cell, version = EXCLUDED.version, changed = EXCLUDED.changed
WHERE known.version < EXCLUDED.version
"""
# Only for tenants of this cell; a domain of another cell's tenant stays there.
_PUT_DOMAINS = """
INSERT INTO cell_domains AS known (domain, tenant, changed)
SELECT domain, given.tenant, $2 FROM unnest($3::text[], $4::uuid[]) AS given (domain, tenant)
JOIN cell_tenants ON cell_tenants.tenant = given.tenant AND cell = $1
ON CONFLICT (domain) DO UPDATE SET tenant = EXCLUDED.tenant, changed = EXCLUDED.changed
WHERE known.tenant IS NULL OR EXISTS (SELECT FROM cell_tenants AS own WHERE own.tenant = known.tenant AND own.cell = $1)
"""
_DROP_DOMAINS = """
UPDATE cell_domains SET tenant = NULL, changed = $2 FROM cell_tenants AS own
WHERE domain = ANY ($3::text[]) AND own.tenant = cell_domains.tenant AND own.cell = $1
"""
_PUT_KEYS = """
INSERT INTO cell_keys AS known (key_id, cell, changed) SELECT key_id, $1, $2 FROM unnest($3::text[]) AS given (key_id)
ON CONFLICT (key_id) DO UPDATE SET cell = EXCLUDED.cell, changed = EXCLUDED.changed WHERE known.cell IS NULL
"""
_DROP_KEYS = "UPDATE cell_keys SET cell = NULL, changed = $2 WHERE key_id = ANY ($3::text[]) AND cell = $1"
_SWITCH = """
INSERT INTO cell_tenants AS known (tenant, cell, version, changed) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant) DO UPDATE SET cell = EXCLUDED.cell, version = EXCLUDED.version, changed = EXCLUDED.changed
WHERE known.cell = $5 AND known.version = $6
RETURNING tenant
"""
_SWITCH_KEYS = """
INSERT INTO cell_keys (key_id, cell, changed) SELECT key_id, $1, $2 FROM unnest($3::text[]) AS given (key_id)
ON CONFLICT (key_id) DO UPDATE SET cell = EXCLUDED.cell, changed = EXCLUDED.changed
"""
_FLEET_SALT = "SELECT salt FROM cell_directory"
_SET_FLEET_SALT = "UPDATE cell_directory SET salt = $1 WHERE salt IS NULL"


class Publication(Struct, frozen=True):
    """The rows of the directory that one cell writes for its own tenants."""

    tenants: Mapping[UUID, int]  # with the versions of their places
    domains: Mapping[str, UUID]
    dropped_domains: Sequence[str]
    keys: Sequence[str]
    dropped_keys: Sequence[str]

    @property
    def empty(self) -> bool:
        return not (self.tenants or self.domains or self.dropped_domains or self.keys or self.dropped_keys)


class DirectoryStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def changes(self, since: int | None) -> DirectoryChanges | None:
        """Return the rows changed after a version, all rows for None, or None if there is no change.

        A directory that is older than `since` was restored from a backup: all its rows are returned.
        """
        async with (
            self._database.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            version = cast("int", await connection.fetchval(_VERSION))
            if version == since:
                return None
            complete = since is None or version < since
            after = 0 if since is None or complete else since
            tenants = await connection.fetch(_TENANTS, after)
            domains = await connection.fetch(_DOMAINS, after)
            keys = await connection.fetch(_KEYS, after)
        return DirectoryChanges(
            version,
            complete,
            {cast("UUID", row["tenant"]): Place(str(row["cell"]), cast("int", row["version"])) for row in tenants},
            {str(row["domain"]): cast("UUID | None", row["tenant"]) for row in domains},
            {str(row["key_id"]): cast("str | None", row["cell"]) for row in keys},
        )

    async def publish(self, cell: str, given: Publication) -> None:
        """Write the rows of a cell's own tenants; rows of other cells stay as they are."""
        async with self._database.connection() as connection, connection.transaction():
            change = await connection.fetchval(_NEXT)
            if given.tenants:
                await connection.execute(_PUT_TENANTS, cell, change, list(given.tenants), list(given.tenants.values()))
            if given.dropped_domains:
                await connection.execute(_DROP_DOMAINS, cell, change, list(given.dropped_domains))
            if given.domains:
                await connection.execute(_PUT_DOMAINS, cell, change, list(given.domains), list(given.domains.values()))
            if given.dropped_keys:
                await connection.execute(_DROP_KEYS, cell, change, list(given.dropped_keys))
            if given.keys:
                await connection.execute(_PUT_KEYS, cell, change, list(given.keys))

    async def place(self, tenant: UUID) -> Place | None:
        """Return the place of a tenant."""
        async with self._database.connection() as connection:
            return await _place(connection, tenant)

    async def switch(
        self, tenant: UUID, before: Place, after: Place, *, domains: Sequence[str], keys: Sequence[str]
    ) -> bool:
        """Change the place of a tenant if it is as expected, or is so already; return whether it is so now."""
        async with self._database.connection() as connection, connection.transaction():
            change = cast("int", await connection.fetchval(_NEXT))
            given = (tenant, after.cell, after.version, change, before.cell, before.version)
            if await connection.fetchval(_SWITCH, *given) is None and await _place(connection, tenant) != after:
                return False
            owners = [tenant] * len(domains)
            await connection.execute(_PUT_DOMAINS, after.cell, change, list(domains), owners)
            await connection.execute(_SWITCH_KEYS, after.cell, change, list(keys))
        return True

    async def offer_salt(self, salt: bytes) -> bytes:
        """Store the salt if the fleet has none; return the fleet's."""
        async with self._database.connection() as connection:
            await connection.execute(_SET_FLEET_SALT, salt)
            return cast("bytes", await connection.fetchval(_FLEET_SALT))


async def _place(connection: Connection, tenant: UUID) -> Place | None:
    row = await connection.fetchrow(_PLACE, tenant)
    return None if row is None else Place(str(row["cell"]), cast("int", row["version"]))
