"""Quarantine retention: deletes expired messages, removes bodies without a row, reports rows without a body.

A body is written before its row, so bodies younger than the grace period stay.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from math import inf
from typing import cast
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.database.clock import read_now
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.events.outbox import NewEvent, record
from mailwarden.model.scope import Scope
from mailwarden.quarantine.model import DEFAULT, HeldMessage, RetentionDays, State
from mailwarden.quarantine.ownership import Deployment, claim, read_deployment
from mailwarden.quarantine.release import ReleaseStore
from mailwarden.quarantine.store import IN_SCOPE, SELECT_MESSAGE, deleted_event, lock_body, message_of
from mailwarden.quarantine.vault import Body, Vault
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import PeriodicTask

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
_MESSAGES = f"{SELECT_MESSAGE} AND uid = ANY ($2::uuid[])"
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
            messages = [message_of(row) for row in await connection.fetch(_MESSAGES, scope.uids(), uids)]
            gone = {row["uid"] for row in await connection.fetch(_EXPIRE, scope.uids(), uids)}
            await record(connection, [_expired_event(each) for each in messages if each.uid in gone])
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
            cast("int", row["messages"]),
            cast("int", row["bytes"]),
            cast("float", row["waiting"]),
            cast("int", row["missing"]),
        )

    async def orphans(self, scope: Scope, vault: UUID) -> Sequence[tuple[UUID, bytes]]:
        """Return a batch of bodies in the vault that may be orphans."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_ORPHANS, scope.uids(), vault, BATCH)
        return [(cast("UUID", row["tenant"]), cast("bytes", row["address"])) for row in rows]

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


INTERVAL = 60.0  # seconds between two runs
SWEEP = 24 * 3_600.0  # seconds between two searches of the whole vault
FIRST_SWEEP = 3_600.0  # after the start
REDATE = 3_600.0  # within which a tenant's new setting applies
GRACE = timedelta(hours=72)  # also the time to notice that an old database backup was restored
REPORT_SECONDS = 3_600.0  # between two log lines about a vault of another deployment
ALL = Scope.deployment()

_log = get_logger("quarantine.retention")


class QuarantineRetention:
    """Several guards may run it at once: each step is one statement, or holds the lock of one body."""

    def __init__(
        self,
        vault: Vault,
        store: RetentionStore,
        releases: ReleaseStore,
        days: RetentionDays,
        interval: float = INTERVAL,
    ) -> None:
        self._vault = vault
        self._store = store
        self._releases = releases
        self._days = days
        # By the monotonic clock: that of the host may be wrong at the start and be corrected later.
        self._swept = time.monotonic() - SWEEP + FIRST_SWEEP
        self._dated = -inf
        self.foreign = False  # the vault belongs to another deployment: nothing is removed from it
        self._reported = 0.0
        self._periodic_task = PeriodicTask("quarantine retention", self._run, interval)

    def start(self) -> None:
        self._periodic_task.start(at_once=True)

    async def stop(self) -> None:
        await self._periodic_task.stop()

    async def redate(self) -> int:
        """Apply the tenants' current days; return how many messages got another expiry."""
        await self._store.delete_expired_tokens(ALL)
        return await self._store.redate(ALL, self._days)

    async def expire(self) -> int:
        """Delete expired messages; return their number."""
        total = 0
        while gone := await self._store.expire(ALL):
            total += gone
        return total

    async def clear(self) -> int:
        """Remove orphaned bodies; return their number."""
        vault, total = await self._vault.uid(), 0
        while found := await self._store.orphans(ALL, vault):
            await self._claim()
            for tenant, address in found:
                remove = partial(self._vault.remove, tenant, address)
                removed = await self._store.clear(ALL, vault, tenant, address, remove)
                total += removed
        return total

    async def find_orphans(self, grace: timedelta = GRACE) -> int:
        """Record bodies without a row as orphans; return their number."""
        await self._claim()
        vault, until, total = await self._vault.uid(), await self._store.now(ALL) - grace, 0
        batch: list[Body] = []
        async for body in self._vault.bodies():
            if body.changed < until:
                batch.append(body)
            if len(batch) == BATCH:
                total += await self._store.add_orphans(ALL, vault, [(each.tenant, each.address) for each in batch])
                batch.clear()
        if batch:
            total += await self._store.add_orphans(ALL, vault, [(each.tenant, each.address) for each in batch])
        return total

    async def find_missing(self) -> int:
        """Record and log the messages without bytes; return their number."""
        vault, after, total = await self._vault.uid(), None, 0
        while messages := await self._store.kept(ALL, vault, after):
            after = messages[-1].uid
            for message in messages:
                missing = message.address is None or not await self._body_exists(message, message.address)
                if missing:
                    total += 1
                    _log.error("held_message_without_body", uid=str(message.uid), tenant=str(message.tenant))
                if missing is not message.missing:
                    await self._releases.set_missing(ALL, message, missing=missing)
        return total

    async def _body_exists(self, message: HeldMessage, address: bytes) -> bool:
        """Return whether the bytes exist; bytes that were missing before are read and verified."""
        look = self._vault.verifies if message.missing else self._vault.has
        return await look(message.tenant, address)

    async def _run(self) -> None:
        await self._store.now(ALL)  # raises if a clock is wrong: PostgreSQL's clock decides which messages expire
        if time.monotonic() - self._dated > REDATE:
            await self.redate()
            self._dated = time.monotonic()
        if expired := await self.expire():
            _log.info("held_messages_expired", messages=expired)
        owned = await self._is_owner()
        if owned and (removed := await self.clear()):
            _log.info("held_bodies_removed", bodies=removed)
        if time.monotonic() - self._swept < SWEEP:
            return
        self._swept = time.monotonic()
        if owned and (orphans := await self.find_orphans()):
            _log.warning("held_bodies_without_row", bodies=orphans)
        await self.find_missing()

    async def _claim(self) -> None:
        """Claim a vault without an owner; raise CommandError if it belongs to another deployment."""
        await claim(self._vault, await self._store.deployment(ALL))

    async def _is_owner(self) -> bool:
        """Return whether this deployment may remove messages; log the reason once an hour if not."""
        try:
            await self._claim()
        except CommandError as error:
            if not self.foreign or time.monotonic() - self._reported > REPORT_SECONDS:
                _log.error("vault_of_other_deployment", reason=error.message)
                self._reported = time.monotonic()
            self.foreign = True
        else:
            self.foreign = False
        return not self.foreign


METRICS_INTERVAL = 60.0


class QuarantineMetrics:
    """Measures in the background, so that reading the metrics costs no query."""

    def __init__(self, store: RetentionStore, metrics: Metrics) -> None:
        self._store = store
        self._totals = HeldTotals()
        self._periodic_task = PeriodicTask("quarantine metrics", self.measure, METRICS_INTERVAL, quiet=True)
        metrics.gauge("quarantine_messages", "Messages held.").set_function(lambda: self._totals.messages)
        metrics.gauge("quarantine_bytes", "Bytes of the messages held.").set_function(lambda: self._totals.bytes)
        metrics.gauge("quarantine_messages_missing", "Messages held whose bytes are missing.").set_function(
            lambda: self._totals.missing
        )
        metrics.gauge("quarantine_release_waiting_seconds", "Age of the oldest requested release.").set_function(
            lambda: self._totals.waiting_seconds
        )

    def start(self) -> None:
        self._periodic_task.start(at_once=True)

    async def stop(self) -> None:
        await self._periodic_task.stop()

    async def measure(self) -> None:
        self._totals = await self._store.totals(ALL)
