"""The quarantine as people work with it: looking, releasing, deleting, and what goes into a list with that.

The API, the commands and the console come here. What is released a guard hands on, within seconds.

Security: `export` gives whole messages out, as hostile as they came; the audit is told before.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from mailwarden.crypto.keyring import BrokenSeal, UnknownKey
from mailwarden.errors import EntryTooBroad, GlobalScopeForbidden, InvalidEntry, NotReleasable, StorageUnavailable
from mailwarden.lists.scope import ListScope
from mailwarden.lists.service import Lists
from mailwarden.model.actor import Actor
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.quarantine.held import EVERYTHING, HeldMessage, Question
from mailwarden.quarantine.store import QuarantineStore, check_deletion, check_release
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from mailwarden.wire.lists import ListEntryInput
from mailwarden.wire.quarantine import Held, HeldFor, Listed


class QuarantineDesk:
    def __init__(self, store: QuarantineStore, vault: Vault, lists: Lists, spool: Path) -> None:
        self._store = store
        self._vault = vault
        self._lists = lists
        self._spool = spool

    async def page(self, scope: Scope, question: Question = EVERYTHING, limit: int = 100) -> Sequence[HeldMessage]:
        return await self._store.page(scope, question, limit)

    async def counts(self, scope: Scope, tenant: UUID | None = None) -> Mapping[Verdict, int]:
        return await self._store.counts(scope, tenant)

    async def find(self, scope: Scope, uid: UUID) -> HeldMessage:
        return await self._store.find(scope, uid)

    async def of_ggrid(self, scope: Scope, tenant: UUID, ggrid: UUID) -> HeldMessage:
        return await self._store.of_ggrid(scope, tenant, ggrid)

    async def release(
        self,
        scope: Scope,
        uid: UUID,
        actor: Actor,
        *,
        recipients: Sequence[str] | None = None,
        allow: Listed | None = None,
        everywhere: bool = False,
    ) -> HeldMessage:
        """Have a message released; with `allow` its sender is let through from now on, for the tenant or for all."""
        if allow is not None:
            message = await self._store.find(scope, uid)
            if message.verdict is Verdict.MALWARE:
                raise NotReleasable("Malware is never delivered, and its sender is not allowed for it.")
            check_release(message, recipients)
            await self._list(scope, "sender-allow", message, allow, actor, everywhere=everywhere)
        return await self._store.ask_release(scope, uid, recipients, actor)

    async def delete(
        self,
        scope: Scope,
        uid: UUID,
        actor: Actor,
        *,
        recipients: Sequence[str] | None = None,
        block: Listed | None = None,
        everywhere: bool = False,
    ) -> HeldMessage:
        """Delete a message; with `block` its sender is held back from now on, for the tenant or for all."""
        if block is not None:
            message = await self._store.find(scope, uid)
            check_deletion(message, recipients)
            await self._list(scope, "sender-block", message, block, actor, everywhere=everywhere)
        return await self._store.delete(scope, uid, recipients, actor)

    async def export(self, scope: Scope, uid: UUID, actor: Actor) -> Spooled:
        """Return the message itself, every byte verified."""
        return await self._fetch(await self._store.note_export(scope, uid, actor))

    async def look_into(self, scope: Scope, uid: UUID, actor: Actor) -> Spooled:
        """Return the message itself for a safe preview, which the audit tells apart from taking it out."""
        return await self._fetch(await self._store.note_export(scope, uid, actor, "preview"))

    async def _fetch(self, message: HeldMessage) -> Spooled:
        assert message.address is not None, "the audit event has it"
        if message.vault != await self._vault.uid():
            raise StorageUnavailable("The message is kept in the vault of another host; ask there.")
        try:
            return await self._vault.get(message.tenant, message.address, self._spool)
        except UnknownKey as error:
            raise NotReleasable(f"The message cannot be opened on this host. {error}") from None
        except (FileNotFoundError, BrokenSeal):
            raise NotReleasable("The message itself cannot be read: it is gone from the vault, or broken.") from None

    async def _list(
        self, scope: Scope, name: str, message: HeldMessage, what: Listed, actor: Actor, *, everywhere: bool
    ) -> None:
        """Add the sender to a list; what cannot be an entry stops the rest, so that nothing is done by halves.

        For the same reason the caller has seen before that there is something to release or to delete.
        """
        if everywhere and scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may change a global list.")
        address = message.from_address or message.sender
        entry = address if what is Listed.ADDRESS else address.rpartition("@")[2]
        if not entry:
            raise NotReleasable("The message names no sender who could be listed; do it without.")
        given = ListEntryInput(entry, comment=f"Quarantine, message {message.uid}")
        try:
            await self._lists.add_entries(ListScope(None if everywhere else message.tenant), name, [given], actor)
        except (InvalidEntry, EntryTooBroad) as error:
            why = next((str(detail["reason"]) for detail in error.details if "reason" in detail), error.message)
            raise NotReleasable(f"The sender of the message cannot be listed; do it without. {why}") from None


def held_of(message: HeldMessage) -> Held:
    """Return a held message as callers see it."""
    return Held(
        uid=message.uid,
        tenant_uid=message.tenant,
        ggrid=message.ggrid,
        verdict=message.verdict,
        sender=message.sender,
        from_address=message.from_address,
        from_name=message.from_name,
        subject=message.subject,
        size=message.size,
        received_at=message.received,
        expires_at=message.expires,
        kept=message.is_kept,
        recipients=tuple(
            HeldFor(each.address, each.state, each.failure, each.changed_by, each.changed_at)
            for each in message.recipients
        ),
    )
