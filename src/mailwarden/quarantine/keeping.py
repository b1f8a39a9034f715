"""Keeps a message that is held back: its bytes first, then its row. Who called may say yes once `keep` has returned.

Whatever goes wrong on the way raises, and the message is still whoever called's. Bytes whose row was not written are
found and removed later; a row whose bytes are gone cannot come about, because both are looked at under one lock.

Security: whole messages pass through here.
"""

from functools import partial
from uuid import UUID, uuid4

from mailwarden.errors import StorageUnavailable
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.quarantine.held import Days
from mailwarden.quarantine.store import BodyGone, QuarantineStore
from mailwarden.quarantine.vault import Bytes, Vault

TRIES = 3


class Keeping:
    def __init__(self, vault: Vault, store: QuarantineStore, days: Days) -> None:
        self._vault = vault
        self._store = store
        self._days = days

    async def keep(self, finished: FinishedRequest, raw: Bytes) -> UUID:
        """Return the uid of the message once nothing that happens to this machine can lose it."""
        tenant, vault = finished.tenant, await self._vault.uid()
        for _ in range(TRIES):
            address = await self._vault.put(tenant, raw)
            try:
                return await self._store.add(
                    Scope.of(tenant),
                    finished,
                    uid=uuid4(),
                    vault=vault,
                    address=address,
                    days=self._days,
                    is_there=partial(self._vault.has, tenant, address),
                )
            except BodyGone:  # the same message was held before, and its bytes were removed just now
                continue
        raise StorageUnavailable("The quarantine does not keep what is put into it.")
