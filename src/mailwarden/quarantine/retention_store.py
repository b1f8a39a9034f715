"""The retention of held messages in PostgreSQL: expired messages, bodies without a row, totals."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import cast
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.database.clock import read_now
from mailwarden.database.pool import Database
from mailwarden.database.rows import read
from mailwarden.events.outbox import NewEvent, record
from mailwarden.model.scope import Scope
from mailwarden.quarantine.model import DEFAULT, HeldMessage, RetentionDays, State
from mailwarden.quarantine.ownership import Deployment, read_deployment
from mailwarden.quarantine.store import HELD, IN_SCOPE, SELECT_MESSAGE, deleted_event, lock_body, message_of

BATCH = 500

# A tenant's new setting applies to messages that are held already.
_REDATE = f"""
UPDATE quarantine SET expires = dated.expires FROM (
    SELECT quarantine.uid, received + make_interval(days => coalesce(
        (quarantine_days ->> verdict)::integer, (quarantine_days ->> '{DEFAULT}')::integer,
        ($3::jsonb ->> verdict)::integer, $2)) AS expires
    FROM quarantine JOIN tenants ON tenants.uid = quarantine.tenant WHERE {IN_SCOPE}
) AS dated WHERE dated.uid = quarantine.uid AND quarantine.expires <> dated.expires
"""  # noqa: S608 -- built from constants
# A message stays while it is being released, for at most seven days.
_NOT_RELEASING = """NOT EXISTS (
    SELECT FROM quarantine_recipients
    WHERE message = uid AND state = 'releasing' AND changed_at > now() - interval '7 days'
)"""
_EXPIRING = f"""
SELECT uid FROM quarantine WHERE {IN_SCOPE} AND expires < now() AND {_NOT_RELEASING}
ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED
"""  # noqa: S608 -- built from constants
# The condition repeats under the lock: a release may have been requested meanwhile.
_EXPIRE = f"""
WITH gone AS (
    DELETE FROM quarantine WHERE {IN_SCOPE} AND uid = ANY ($2::uuid[]) AND {_NOT_RELEASING}
    RETURNING uid, vault, tenant, address
), orphaned AS (
    INSERT INTO quarantine_leavings SELECT DISTINCT vault, tenant, address FROM gone WHERE address IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT uid FROM gone
"""  # noqa: S608 -- built from constants
_ORPHANS = """
SELECT tenant, address FROM quarantine_leavings
WHERE ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND vault = $2 LIMIT $3
"""
_NEEDED = "SELECT EXISTS (SELECT FROM quarantine WHERE vault = $1 AND address = $2 AND tenant = $3)"
_CLEARED = "DELETE FROM quarantine_leavings WHERE vault = $1 AND address = $2 AND tenant = $3"
_ADD_ORPHANS = """
INSERT INTO quarantine_leavings (vault, tenant, address)
SELECT $2, tenant, address FROM unnest($3::uuid[], $4::bytea[]) AS body (tenant, address)
WHERE ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND NOT EXISTS (
    SELECT FROM quarantine WHERE quarantine.vault = $2 AND quarantine.address = body.address
    AND quarantine.tenant = body.tenant)
ON CONFLICT DO NOTHING
"""
_IN_OTHER_VAULTS = f"SELECT count(*) FROM quarantine WHERE {IN_SCOPE} AND vault <> $2 AND address IS NOT NULL"  # noqa: S608
_KEPT = (
    f"{SELECT_MESSAGE} AND vault = $2 AND address IS NOT NULL AND ($3::uuid IS NULL OR uid > $3) ORDER BY uid LIMIT $4"
)
_DELETE_TOKENS = "DELETE FROM quarantine_passes WHERE expires < now() - interval '1 day'"
_MEASURE = f"""
SELECT count(*) AS messages, coalesce(sum(size), 0)::bigint AS bytes, count(*) FILTER (WHERE missing) AS missing, (
    SELECT coalesce(extract(epoch FROM now() - min(changed_at)), 0)::float8
    FROM quarantine_recipients JOIN quarantine ON uid = message WHERE {IN_SCOPE} AND state = 'releasing'
) AS waiting
FROM quarantine WHERE {IN_SCOPE} AND address IS NOT NULL
"""  # noqa: S608 -- built from constants


class HeldTotals(Struct, frozen=True):
    """The totals of all vaults; a body that two messages share counts twice."""

    messages: int = 0
    bytes: int = 0
    waiting_seconds: float = 0.0  # age of the oldest requested release
    missing: int = 0  # of the messages, those whose bytes are lost or damaged


class RetentionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def redate(self, scope: Scope, days: RetentionDays) -> int:
        """Apply the tenants' current days; return how many messages got another expiry."""
        of = msgspec.json.encode(dict(days.of)).decode()
        async with self._database.connection() as connection:
            return _count(await connection.execute(_REDATE, scope.uids(), days.default, of))

    async def expire(self, scope: Scope) -> int:
        """Delete a batch of expired messages; return their number."""
        async with self._database.connection() as connection, connection.transaction():
            uids = [row["uid"] for row in await connection.fetch(_EXPIRING, scope.uids(), BATCH)]
            if not uids:
                return 0
            messages = [message_of(row) for row in await connection.fetch(HELD, scope.uids(), uids)]
            gone = {row["uid"] for row in await connection.fetch(_EXPIRE, scope.uids(), uids)}
            await record(connection, [_expired_event(message) for message in messages if message.uid in gone])
            return len(gone)

    async def delete_expired_tokens(self, scope: Scope) -> None:
        """Delete expired release tokens, which belong to no tenant."""
        async with self._database.connection() as connection:
            await connection.execute(_DELETE_TOKENS)

    async def now(self, scope: Scope) -> datetime:
        """Return PostgreSQL's time; raise CommandError if this host's clock differs."""
        async with self._database.connection() as connection:
            return await read_now(connection)

    async def deployment(self, scope: Scope) -> Deployment:
        """Return this deployment."""
        async with self._database.connection() as connection:
            return await read_deployment(connection)

    async def totals(self, scope: Scope) -> HeldTotals:
        """Return the totals of all vaults."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_MEASURE, scope.uids())
        if row is None:
            return HeldTotals()
        return HeldTotals(
            read(row, "messages", int),
            read(row, "bytes", int),
            read(row, "waiting", float),
            read(row, "missing", int),
        )

    async def orphans(self, scope: Scope, vault: UUID) -> Sequence[tuple[UUID, bytes]]:
        """Return a batch of bodies in the vault that may be orphans."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_ORPHANS, scope.uids(), vault, BATCH)
        return [(read(row, "tenant", UUID), read(row, "address", bytes)) for row in rows]

    async def clear(
        self, scope: Scope, vault: UUID, tenant: UUID, address: bytes, remove: Callable[[], Awaitable[None]]
    ) -> bool:
        """Remove a body unless a row points to it; the lock blocks new references meanwhile."""
        async with self._database.connection() as connection, connection.transaction():
            await lock_body(connection, address)
            needed = bool(await connection.fetchval(_NEEDED, vault, address, tenant))
            if not needed:
                await remove()
            await connection.execute(_CLEARED, vault, address, tenant)
        return not needed

    async def add_orphans(self, scope: Scope, vault: UUID, bodies: Sequence[tuple[UUID, bytes]]) -> int:
        """Record the bodies without a row for removal; return their number."""
        tenants, addresses = [tenant for tenant, _ in bodies], [address for _, address in bodies]
        async with self._database.connection() as connection:
            return _count(await connection.execute(_ADD_ORPHANS, scope.uids(), vault, tenants, addresses))

    async def kept(self, scope: Scope, vault: UUID, after: UUID | None = None) -> Sequence[HeldMessage]:
        """Return a batch of messages with bytes in the vault."""
        async with self._database.connection() as connection:
            return [message_of(row) for row in await connection.fetch(_KEPT, scope.uids(), vault, after, BATCH)]

    async def count_in_other_vaults(self, scope: Scope, vault: UUID) -> int:
        """Return the number of messages in other vaults."""
        async with self._database.connection() as connection:
            return cast("int", await connection.fetchval(_IN_OTHER_VAULTS, scope.uids(), vault))


def _expired_event(message: HeldMessage) -> NewEvent:
    """Return the event of a message whose retention has ended, for the recipients that had not received it."""
    held = [*message.in_state(State.HELD), *message.in_state(State.RELEASING)]
    return deleted_event(message, held, "system:retention", "retention")


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2])
