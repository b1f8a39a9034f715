"""Deletes entries of lists that have expired, a day after they stopped to act."""

from datetime import datetime

from mailwarden.lists.catalogue import find_list
from mailwarden.lists.service import stamp_of, time_text
from mailwarden.lists.store import GRACE, ListStore
from mailwarden.model.scope import Actor, Scope
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.periodic_task import PeriodicTask

INTERVAL = 60.0
BATCH = 500
ACTOR = Actor("system:expiry")
_log = get_logger("lists.expiry")


class Expiry:
    """Looks once a minute; several abbys may do so at once, for an entry can only be deleted once."""

    def __init__(self, store: ListStore, interval: float = INTERVAL) -> None:
        self._store = store
        self._periodic_task = PeriodicTask("list expiry", self._purge_now, interval, quiet=True)

    async def purge(self, now: datetime) -> int:
        """Delete what expired more than a day before `now`; return how many entries went."""
        before = time_text(now - GRACE)
        purged = 0
        while expired_by_list := await self._store.expired(Scope.deployment(), before, BATCH):
            gone = 0
            for scope, name, entries in expired_by_list:
                gone += await self._store.delete(
                    scope, find_list(name), entries, stamp_of(ACTOR), expired_before=before
                )
            purged += gone
            if not gone:  # another abby was quicker
                break
        return purged

    def start(self) -> None:
        self._periodic_task.start()

    async def stop(self) -> None:
        await self._periodic_task.stop()

    async def _purge_now(self) -> None:
        if purged := await self.purge(await self._store.now(Scope.deployment())):
            _log.info("entries_expired", entries=purged)
