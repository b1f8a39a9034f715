"""What a report says about who writes to whom: a sender of good mail is known better, one of bad mail is forgotten."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.history.senders import sender_contacts
from mailwarden.history.store import ContactCount, ContactRecord, SenderStore
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope


class Change(Struct, frozen=True):
    """What was changed, kept with the lesson so that it can be undone."""

    counted: tuple[bytes, ...] = ()
    taken: tuple[ContactRecord, ...] = ()


class Senders:
    def __init__(self, store: SenderStore) -> None:
        self._store = store

    async def trust(self, request: FinishedRequest) -> Mapping[str, object]:
        """Count the message among the sender's good ones."""
        scope, pairs = Scope.of(request.tenant), await self.pairs(request)
        day = datetime.now(UTC).date()
        await self._store.add(scope, [ContactCount(request.tenant, pair, day, 1) for pair in pairs])
        return _kept(Change(counted=tuple(pairs)))

    async def distrust(self, request: FinishedRequest) -> Mapping[str, object]:
        """Forget that the tenant ever heard from the sender."""
        scope, pairs = Scope.of(request.tenant), await self.pairs(request)
        return _kept(Change(taken=tuple(await self._store.remove(scope, request.tenant, pairs))))

    async def undo(self, tenant: UUID, kept: Mapping[str, object]) -> None:
        """Take back what a report changed."""
        change, scope = msgspec.convert(kept, Change, strict=False), Scope.of(tenant)
        if change.counted:
            await self._store.subtract(scope, tenant, change.counted)
        await self._store.restore(scope, tenant, change.taken)

    async def pairs(self, request: FinishedRequest) -> Sequence[bytes]:
        """Return under which digests the sender is known: by itself, and with each recipient."""
        return sender_contacts(request, await self._store.salt(Scope.of(request.tenant)))


def _kept(change: Change) -> Mapping[str, object]:
    """Return it as what JSON can hold."""
    return msgspec.convert(msgspec.to_builtins(change), dict[str, object])
