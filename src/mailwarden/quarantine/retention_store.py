"""What the quarantine keeps no longer, in PostgreSQL: rows that expire, and bodies that no row points to."""

from collections.abc import Awaitable, Callable, Sequence
from typing import cast
from uuid import UUID

import msgspec

from mailwarden.database.pool import Database
from mailwarden.model.scope import Scope
from mailwarden.quarantine.held import DEFAULT, Days, HeldMessage
from mailwarden.quarantine.rows import MESSAGE, MINE, lock_body, message_of, uids_of

BATCH = 500

# What a tenant has changed since acts on what is held already.
_REDATE = f"""
UPDATE quarantine SET expires = dated.expires FROM (
    SELECT quarantine.uid, received + make_interval(days => coalesce(
        (quarantine_days ->> verdict)::integer, (quarantine_days ->> '{DEFAULT}')::integer,
        ($3::jsonb ->> verdict)::integer, $2)) AS expires
    FROM quarantine JOIN tenants ON tenants.uid = quarantine.tenant WHERE {MINE}
) AS dated WHERE dated.uid = quarantine.uid AND quarantine.expires <> dated.expires
"""  # noqa: S608 -- put together from the constants above
# What is being released stays until that is done, unless nobody who has its bytes does it.
_NOT_RELEASING = """NOT EXISTS (
    SELECT FROM quarantine_recipients
    WHERE message = uid AND state = 'releasing' AND changed_at > now() - interval '7 days'
)"""
_EXPIRING = f"""
SELECT uid FROM quarantine WHERE {MINE} AND expires < now() AND {_NOT_RELEASING}
ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED
"""  # noqa: S608 -- put together from the constants above
# Asked again once the rows are locked: a release may have been asked for just before.
_EXPIRE = f"""
WITH gone AS (
    DELETE FROM quarantine WHERE {MINE} AND uid = ANY ($2::uuid[]) AND {_NOT_RELEASING}
    RETURNING vault, tenant, address
), left_over AS (
    INSERT INTO quarantine_leavings SELECT DISTINCT vault, tenant, address FROM gone WHERE address IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone
"""  # noqa: S608 -- put together from the constants above
_FORGET_PASSES = "DELETE FROM quarantine_passes WHERE expires < now() - interval '1 day'"
_LEAVINGS = """
SELECT tenant, address FROM quarantine_leavings
WHERE ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND vault = $2 LIMIT $3
"""
_NEEDED = "SELECT EXISTS (SELECT FROM quarantine WHERE vault = $1 AND address = $2 AND tenant = $3)"
_CLEARED = "DELETE FROM quarantine_leavings WHERE vault = $1 AND address = $2 AND tenant = $3"
_ORPHANS = """
INSERT INTO quarantine_leavings (vault, tenant, address)
SELECT $2, tenant, address FROM unnest($3::uuid[], $4::bytea[]) AS body (tenant, address)
WHERE ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND NOT EXISTS (
    SELECT FROM quarantine WHERE quarantine.vault = $2 AND quarantine.address = body.address
    AND quarantine.tenant = body.tenant)
ON CONFLICT DO NOTHING
"""
_ELSEWHERE = f"SELECT count(*) FROM quarantine WHERE {MINE} AND vault <> $2 AND address IS NOT NULL"  # noqa: S608
_KEPT = f"{MESSAGE} AND vault = $2 AND address IS NOT NULL AND ($3::uuid IS NULL OR uid > $3) ORDER BY uid LIMIT $4"


class RetentionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def redate(self, scope: Scope, days: Days) -> int:
        """Let messages expire by what their tenants say now; return how many expire at another time."""
        of = msgspec.json.encode(dict(days.of)).decode()
        async with self._database.connection() as connection:
            return _count(await connection.execute(_REDATE, uids_of(scope), days.default, of))

    async def expire(self, scope: Scope) -> int:
        """Forget messages whose time is over, so many at once; return how many that were."""
        async with self._database.connection() as connection, connection.transaction():
            uids = [row["uid"] for row in await connection.fetch(_EXPIRING, uids_of(scope), BATCH)]
            return cast("int", await connection.fetchval(_EXPIRE, uids_of(scope), uids)) if uids else 0

    async def forget_passes(self, scope: Scope) -> int:
        async with self._database.connection() as connection:
            return _count(await connection.execute(_FORGET_PASSES))

    async def leavings(self, scope: Scope, vault: UUID) -> Sequence[tuple[UUID, bytes]]:
        """Return bodies of the vault that may be needed no longer, so many at once."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_LEAVINGS, uids_of(scope), vault, BATCH)
        return [(cast("UUID", row["tenant"]), cast("bytes", row["address"])) for row in rows]

    async def clear(
        self, scope: Scope, vault: UUID, tenant: UUID, address: bytes, remove: Callable[[], Awaitable[None]]
    ) -> bool:
        """Have a body removed unless a row points to it; nobody can begin to rely on it meanwhile."""
        async with self._database.connection() as connection, connection.transaction():
            await lock_body(connection, address)
            needed = bool(await connection.fetchval(_NEEDED, vault, address, tenant))
            if not needed:
                await remove()
            await connection.execute(_CLEARED, vault, address, tenant)
        return not needed

    async def leave(self, scope: Scope, vault: UUID, bodies: Sequence[tuple[UUID, bytes]]) -> int:
        """Note those of the bodies that no row points to, for removal; return how many that are."""
        tenants, addresses = [tenant for tenant, _ in bodies], [address for _, address in bodies]
        async with self._database.connection() as connection:
            return _count(await connection.execute(_ORPHANS, uids_of(scope), vault, tenants, addresses))

    async def kept(self, scope: Scope, vault: UUID, after: UUID | None = None) -> Sequence[HeldMessage]:
        """Return messages whose bytes are to be in the vault, so many at once."""
        async with self._database.connection() as connection:
            return [message_of(row) for row in await connection.fetch(_KEPT, uids_of(scope), vault, after, BATCH)]

    async def count_elsewhere(self, scope: Scope, vault: UUID) -> int:
        """Return how many messages are held in other vaults than this one."""
        async with self._database.connection() as connection:
            return cast("int", await connection.fetchval(_ELSEWHERE, uids_of(scope), vault))


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2])
