"""Quarantine retention: deletes expired messages, removes bodies without a row, reports rows without a body.

A body is written before its row, so bodies younger than the grace period stay.
"""

import time
from datetime import timedelta
from functools import partial
from math import inf

from mailwarden.errors import CommandError
from mailwarden.model.scope import Scope
from mailwarden.quarantine.model import HeldMessage, RetentionDays
from mailwarden.quarantine.ownership import claim
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.retention_store import BATCH, HeldTotals, RetentionStore
from mailwarden.quarantine.vault import Body, Vault
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import PeriodicTask

INTERVAL = 60.0  # seconds between two runs
SWEEP = 24 * 3_600.0  # seconds between two searches of the whole vault
FIRST_SWEEP = 3_600.0  # after the start
REDATE = 3_600.0  # within which a tenant's new setting applies
GRACE = timedelta(hours=72)  # also the time to notice that an old database backup was restored
REPORT_SECONDS = 3_600.0  # between two log lines about a vault of another deployment
ALL = Scope.deployment()

_log = get_logger("quarantine.retention")

METRICS_INTERVAL = 60.0


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


class QuarantineMetrics:
    """Measures in the background, so that reading the metrics costs no query."""

    def __init__(self, store: RetentionStore, metrics: Metrics, interval: float = METRICS_INTERVAL) -> None:
        self._store = store
        self._totals = HeldTotals()
        self._periodic_task = PeriodicTask("quarantine metrics", self.measure, interval, quiet=True)
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
