"""Forgets held messages when their time is over, removes bodies that no row points to, and tells of rows without any.

A body is older than a row by the time that it takes to write the row: what is younger than the grace is left alone.
"""

from datetime import UTC, datetime, timedelta
from functools import partial

from mailwarden.model.scope import Scope
from mailwarden.quarantine.held import Days, HeldMessage
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.retention_store import BATCH, RetentionStore
from mailwarden.quarantine.vault import Body, Vault
from mailwarden.telemetry.chore import Chore
from mailwarden.telemetry.logs import get_logger

INTERVAL = 60.0  # between two looks at what has expired or was deleted
SWEEP = timedelta(hours=24)  # between two looks at everything
FIRST_SWEEP = timedelta(hours=1)  # after the start
REDATE = timedelta(hours=1)  # within which what a tenant changed acts
GRACE = timedelta(hours=72)  # for a database that was set back, too: its operators have so long to notice
ALL = Scope.deployment()

_log = get_logger("quarantine.retention")


class QuarantineRetention:
    """Several guards may do this at once: each step is one statement, or holds the lock of one body."""

    def __init__(
        self, vault: Vault, store: RetentionStore, releases: ReleaseStore, days: Days, interval: float = INTERVAL
    ) -> None:
        self._vault = vault
        self._store = store
        self._releases = releases
        self._days = days
        self._swept = datetime.now(UTC) - SWEEP + FIRST_SWEEP
        self._dated = datetime.min.replace(tzinfo=UTC)
        self._chore = Chore("quarantine retention", self._look, interval)

    def start(self) -> None:
        self._chore.start(rested=True)

    async def stop(self) -> None:
        await self._chore.stop()

    async def redate(self) -> int:
        """Let messages expire by what their tenants say now; return how many expire at another time."""
        await self._store.forget_passes(ALL)
        return await self._store.redate(ALL, self._days)

    async def expire(self) -> int:
        """Forget the messages whose time is over; return how many."""
        total = 0
        while gone := await self._store.expire(ALL):
            total += gone
        return total

    async def clear(self) -> int:
        """Remove bodies that were given up; return how many."""
        vault, total = await self._vault.uid(), 0
        while found := await self._store.leavings(ALL, vault):
            for tenant, address in found:
                remove = partial(self._vault.remove, tenant, address)
                removed = await self._store.clear(ALL, vault, tenant, address, remove)
                total += removed
        return total

    async def find_orphans(self, grace: timedelta = GRACE) -> int:
        """Give up bodies whose row was never written; return how many."""
        vault, until, total = await self._vault.uid(), datetime.now(UTC) - grace, 0
        batch: list[Body] = []
        async for body in self._vault.bodies():
            if body.changed < until:
                batch.append(body)
            if len(batch) == BATCH:
                total += await self._store.leave(ALL, vault, [(each.tenant, each.address) for each in batch])
                batch.clear()
        if batch:
            total += await self._store.leave(ALL, vault, [(each.tenant, each.address) for each in batch])
        return total

    async def find_missing(self) -> int:
        """Note and tell which messages have lost their bytes; return how many."""
        vault, after, total = await self._vault.uid(), None, 0
        while messages := await self._store.kept(ALL, vault, after):
            after = messages[-1].uid
            for message in messages:
                missing = message.address is None or not await self._is_there(message, message.address)
                if missing:
                    total += 1
                    _log.error("held_message_without_body", uid=str(message.uid), tenant=str(message.tenant))
                if missing is not message.missing:
                    await self._releases.note_missing(ALL, message, missing=missing)
        return total

    async def _is_there(self, message: HeldMessage, address: bytes) -> bool:
        """Tell whether the bytes are there; where they were not, or were changed, all of them are read."""
        look = self._vault.is_sound if message.missing else self._vault.has
        return await look(message.tenant, address)

    async def _look(self) -> None:
        if datetime.now(UTC) - self._dated > REDATE:
            await self.redate()
            self._dated = datetime.now(UTC)
        if expired := await self.expire():
            _log.info("held_messages_expired", messages=expired)
        if removed := await self.clear():
            _log.info("held_bodies_removed", bodies=removed)
        if datetime.now(UTC) - self._swept < SWEEP:
            return
        self._swept = datetime.now(UTC)
        if orphans := await self.find_orphans():
            _log.warning("held_bodies_without_row", bodies=orphans)
        await self.find_missing()
