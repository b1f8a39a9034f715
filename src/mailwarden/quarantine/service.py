"""Quarantine operations: the writer holds a message, the service lists, releases, deletes and exports held messages.

The API, the CLI and the console use the same service. A guard delivers a released message within seconds.

Security: whole messages pass through here. `export` returns hostile bytes, after the audit event is committed.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

from mailwarden.crypto.keyring import BrokenSeal, UnknownKey
from mailwarden.errors import EntryTooBroad, GlobalScopeForbidden, InvalidEntry, NotReleasable, StorageUnavailable
from mailwarden.lists.catalogue import MatchOn, block_and_allow
from mailwarden.lists.kinds.domains import with_subdomains
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine import requests
from mailwarden.quarantine.model import HeldMessage, RetentionDays
from mailwarden.quarantine.requests import SenderPart
from mailwarden.quarantine.store import BodyGone, QuarantineStore, check_deletion, check_release
from mailwarden.quarantine.vault import Bytes, Vault
from mailwarden.serving.spool import Spooled

TRIES = 3
_SENDER_BLOCK, _SENDER_ALLOW = block_and_allow(MatchOn.SENDER)


class QuarantineService:
    """Actions that need more than `store`, which finds the messages and acts on several of them."""

    def __init__(self, store: QuarantineStore, vault: Vault, lists: ListService, spool: Path) -> None:
        self.store = store
        self._vault = vault
        self._lists = lists
        self._spool = spool

    async def release(
        self,
        scope: Scope,
        uid: UUID,
        actor: Actor,
        *,
        recipients: Sequence[str] | None = None,
        allow: SenderPart | None = None,
        global_list: bool = False,
        train: bool = False,
    ) -> HeldMessage:
        """Request the release of a message; `allow` adds its sender to sender-allow, for the tenant or globally.

        With `train` the tenant's statistics learn it as good once it is delivered.
        """
        if allow is not None:
            message = await self.store.find(scope, uid)
            if message.verdict is Verdict.MALWARE:
                raise NotReleasable("Malware is never delivered, and its sender cannot be allowed.")
            check_release(message, recipients)
            await self._list(scope, _SENDER_ALLOW, message, allow, actor, global_list=global_list)
        return await self.store.request_release(scope, uid, recipients, actor, train=train)

    async def delete(
        self,
        scope: Scope,
        uid: UUID,
        actor: Actor,
        *,
        recipients: Sequence[str] | None = None,
        block: SenderPart | None = None,
        global_list: bool = False,
    ) -> HeldMessage:
        """Delete a message; `block` adds its sender to sender-block, for the tenant or globally."""
        if block is not None:
            message = await self.store.find(scope, uid)
            check_deletion(message, recipients)
            await self._list(scope, _SENDER_BLOCK, message, block, actor, global_list=global_list)
        return await self.store.delete(scope, uid, recipients, actor)

    async def export(self, scope: Scope, uid: UUID, actor: Actor) -> Spooled:
        """Return the bytes of the message, verified."""
        return await self._fetch(await self.store.record_export(scope, uid, actor))

    async def preview(self, scope: Scope, uid: UUID, actor: Actor) -> Spooled:
        """Return the bytes for a safe preview, which has its own audit event."""
        return await self._fetch(await self.store.record_export(scope, uid, actor, "preview"))

    async def _fetch(self, message: HeldMessage) -> Spooled:
        assert message.address is not None, "record_export has checked it"
        if message.vault != await self._vault.uid():
            raise StorageUnavailable("Another host's vault has this message. Repeat the call there.")
        try:
            return await self._vault.get(message.tenant, message.address, self._spool)
        except UnknownKey as error:
            raise NotReleasable(f"This host cannot decrypt the message. {error}") from None
        except (FileNotFoundError, BrokenSeal):
            raise NotReleasable("The stored message is missing or damaged.") from None

    async def _list(
        self, scope: Scope, name: str, message: HeldMessage, what: SenderPart, actor: Actor, *, global_list: bool
    ) -> None:
        """Add the sender to a list; the caller has checked that the rest will succeed.

        An invalid entry raises before anything is released or deleted.
        """
        if global_list and scope.tenants is not None:
            raise GlobalScopeForbidden("Only an administrator of the deployment may change a global list.")
        address = message.from_address or message.sender
        domain = address.rpartition("@")[2]
        entries = [address] if what is SenderPart.ADDRESS else [*with_subdomains(domain)]
        if not entries[0]:
            raise NotReleasable("The message has no sender to list. Repeat without the list entry.")
        given = [ListEntryInput(entry, comment=f"Quarantine, message {message.uid}") for entry in entries]
        try:
            await self._lists.add_entries(ListScope(None if global_list else message.tenant), name, given, actor)
        except (InvalidEntry, EntryTooBroad) as error:
            why = next((str(detail["reason"]) for detail in error.details if "reason" in detail), error.message)
            raise NotReleasable(f"The sender cannot be a list entry. Repeat without it. {why}") from None


def held_of(message: HeldMessage) -> requests.HeldMessage:
    """Return the API record of a held message."""
    return requests.HeldMessage(
        uid=message.uid,
        tenant_uid=message.tenant,
        ggrid=message.ggrid,
        verdict=message.verdict,
        reason=message.reason,
        sender=message.sender,
        from_address=message.from_address,
        from_name=message.from_name,
        subject=message.subject,
        size=message.size,
        received_at=message.received,
        expires_at=message.expires,
        stored=message.is_kept,
        recipients=tuple(
            requests.HeldRecipient(
                recipient.address, recipient.state, recipient.failure, recipient.changed_by, recipient.changed_at
            )
            for recipient in message.recipients
        ),
    )


class QuarantineWriter:
    def __init__(self, vault: Vault, store: QuarantineStore, days: RetentionDays) -> None:
        self._vault = vault
        self._store = store
        self._days = days

    async def hold(self, finished: FinishedRequest, raw: Bytes) -> UUID:
        """Store the bytes, then the row; return the uid once both survive a crash.

        Any failure raises, and the caller still has the message. Retention removes bytes without a row. A row without
        bytes cannot occur, because `add` checks the bytes under the same lock as their removal."""
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
                    body_exists=partial(self._vault.has, tenant, address),
                )
            except BodyGone:  # the same message was held before, and its bytes were removed meanwhile
                continue
        raise StorageUnavailable("The quarantine does not hold what is put into it.")
