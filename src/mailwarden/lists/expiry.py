"""Takes entries out of the lists some time after they expired.

An expired entry acts no more from that moment on. It is still listed and still counts, so that whoever made it can
see it and extend it; a day later it is gone.
"""

from datetime import UTC, datetime, timedelta

from mailwarden.lists.catalogue import find_list
from mailwarden.lists.service import stamp_of, time_text
from mailwarden.lists.store import ListStore
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope
from mailwarden.telemetry.chore import Chore
from mailwarden.telemetry.logs import get_logger

GRACE = timedelta(days=1)
INTERVAL = 60.0
BATCH = 500
ACTOR = Actor("system:expiry")

_log = get_logger("lists.expiry")


class Expiry:
    """Looks once a minute; several abbys may do so at once, for an entry can only be deleted once."""

    def __init__(self, store: ListStore, interval: float = INTERVAL) -> None:
        self._store = store
        self._chore = Chore("list expiry", self._purge_now, interval, quiet=True)

    async def purge(self, now: datetime) -> int:
        """Delete what expired more than a day before `now`; return how many entries went."""
        before = time_text(now - GRACE)
        purged = 0
        while found := await self._store.expired(Scope.deployment(), before, BATCH):
            gone = 0
            for scope, name, entries in found:
                gone += await self._store.delete(
                    scope, find_list(name), entries, stamp_of(ACTOR), expired_before=before
                )
            purged += gone
            if not gone:  # another abby was quicker
                break
        return purged

    def start(self) -> None:
        self._chore.start()

    async def stop(self) -> None:
        await self._chore.stop()

    async def _purge_now(self) -> None:
        if purged := await self.purge(datetime.now(UTC)):
            _log.info("entries_expired", entries=purged)
