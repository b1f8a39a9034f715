"""Passes of released messages, as the scan source `smtp` takes them: verified, and each of use once.

Security: what a pass lets through is not scanned. A message without one costs a look at its header block.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from mailwarden.errors import StorageUnavailable
from mailwarden.model.scope import Scope
from mailwarden.quarantine.bypass import Bypass, BypassSeal
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.logs import get_logger

_ALL = Scope.deployment()
log = get_logger(__name__)


class Passes:
    def __init__(self, seal: BypassSeal, store: ReleaseStore) -> None:
        self._seal = seal
        self._store = store

    async def admit(self, raw: Spooled, recipients: Iterable[str]) -> Bypass | None:
        """Return the pass by which a message goes through unscanned; whether it is spent must be known."""
        bypass = await self._seal.admit(raw, recipients, datetime.now(UTC))
        if bypass is None:
            return None
        if await self._store.is_spent(_ALL, bypass.uid):
            log.warning("pass_spent", ggrid=str(bypass.ggrid))
            return None
        return bypass

    async def spend(self, bypass: Bypass) -> None:
        """Note that the message went through; should that fail, it may go through again, to the same recipient."""
        log.info("passed", ggrid=str(bypass.ggrid))
        with suppress(StorageUnavailable):
            await self._store.spend(_ALL, bypass.uid, bypass.expires)
