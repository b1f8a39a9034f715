"""Reports about messages: add, withdraw, reset and rebuild them, for the API, the console and the commands.

A report is stored for training the engine, and changes the sender history of the tenant: a good message counts for its
sender, a threat deletes what is known of its sender. Withdrawing a report undoes both.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from uuid import UUID, uuid4

import msgspec
from msgspec import Struct

from mailwarden.errors import EmptyEmail, MessageMismatch
from mailwarden.history.store import HistoryStore, find_message
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Actor, Scope
from mailwarden.senders.lookup import account_contacts, sender_contacts
from mailwarden.senders.model import ContactCount, ContactRecord, SenderStore
from mailwarden.senders.relations import KNOWN_AGE
from mailwarden.user_reports.reports import ContentsSeal, Kind, NewReport, ReportedMessage, TrainingStatus, UserReport
from mailwarden.user_reports.store import ReportStore
from mailwarden.wire.strict_json import violation_at

MAX_SUBJECT = 200


class _SenderChange(Struct, frozen=True):
    """The change of sender history that a report caused, stored with it so that it can be undone."""

    counted: tuple[bytes, ...] = ()
    taken: tuple[ContactRecord, ...] = ()


class ReportService:
    def __init__(self, store: ReportStore, history: HistoryStore, seal: ContentsSeal) -> None:
        self._store = store
        self._history = history
        self._seal = seal

    async def report_message(
        self, scope: Scope, ggrid: str, kind: Kind, actor: Actor, contents: bytes | ReportedMessage | None = None
    ) -> UserReport:
        """Report a message of history; its bytes, if given, must be the bytes of that message.

        A report belongs to one tenant, so the scope must have one row of that ggrid.
        """
        request = await find_message(self._history, scope, ggrid)
        if len(await self._history.tenants_of(scope, request.ggrid)) > 1:
            raise violation_at("/tenantUid", "Missing: the message has recipients of several tenants, name one")
        message = _message(contents)
        if message is not None and message.digest.hex() != request.summary.sha256:
            raise MessageMismatch(
                "These are not the bytes of that message: send it exactly as it was scanned, or report it by itself."
            )
        return await self.report_request(scope, request, kind, actor, message)

    async def report_request(
        self, scope: Scope, request: FinishedRequest, kind: Kind, actor: Actor, message: ReportedMessage | None = None
    ) -> UserReport:
        """Report a message whose row in history the caller has read."""
        summary = request.summary
        digest = bytes.fromhex(summary.sha256) if summary.sha256 else sha256(str(request.ggrid).encode()).digest()
        uid = uuid4()
        report = NewReport(
            uid=uid,
            tenant=request.tenant,
            kind=kind,
            digest=digest,
            size=summary.size,
            contents=await self._sealed(uid, message),
            ggrid=request.ggrid,
            subject=summary.subject[:MAX_SUBJECT],
        )
        return await self._add(scope, report, actor, request)

    async def report_contents(
        self, scope: Scope, tenant: UUID, kind: Kind, actor: Actor, *, contents: bytes | ReportedMessage
    ) -> UserReport:
        """Report a message that need not be in history."""
        message = _message(contents)
        if message is None or not message.size:
            raise EmptyEmail("The message is empty: send its raw bytes.")
        uid = uuid4()
        report = NewReport(uid, tenant, kind, message.digest, message.size, await self._sealed(uid, message))
        return await self._add(scope, report, actor)

    async def withdraw(self, scope: Scope, uid: UUID, actor: Actor) -> None:
        """Undo a report: the next generation is trained without it."""
        tenant, change = await self._store.withdraw(scope, uid, actor)
        if change is not None:
            await undo_sender_change(self._history.senders, tenant, change)

    async def reset(self, scope: Scope, tenant: UUID, actor: Actor) -> int:
        """Delete every report of a tenant and the classifier trained with them; return their number."""
        return await self._store.reset(scope, tenant, actor)

    async def rebuild(self, scope: Scope, tenant: UUID, actor: Actor) -> None:
        """Train a new generation with all reports; the current one is used until then."""
        await self._store.rebuild(scope, tenant, actor)

    async def status(self, scope: Scope, tenant: UUID) -> TrainingStatus:
        return await self._store.status(scope, tenant)

    async def reports(
        self,
        scope: Scope,
        tenant: UUID,
        before: datetime | None = None,
        limit: int = 100,
        *,
        before_uid: UUID | None = None,
    ) -> Sequence[UserReport]:
        return await self._store.page(scope, tenant, before, limit, before_uid=before_uid)

    async def reports_of(self, scope: Scope, ggrid: UUID) -> Sequence[UserReport]:
        return await self._store.of_message(scope, ggrid)

    async def _add(
        self, scope: Scope, report: NewReport, actor: Actor, request: FinishedRequest | None = None
    ) -> UserReport:
        """Store the report, then change sender history; an earlier change of the same side stays as it is."""
        stored, replaced = await self._store.add(scope, report, actor)
        senders = self._history.senders
        change = replaced.change if replaced is not None else None
        if replaced is not None and change is not None and replaced.kind.is_threat != report.kind.is_threat:
            await undo_sender_change(senders, report.tenant, change)
            change = None
        if change is None and request is not None:
            change = await (delete_sender if report.kind.is_threat else count_sender)(senders, request)
        if change is not None:
            await self._store.save_change(scope, stored.uid, change)
        return stored

    async def _sealed(self, uid: UUID, message: ReportedMessage | None) -> bytes | None:
        """Return the message sealed for its report; None if it is missing or too large."""
        if message is None or message.data is None:
            return None
        return await asyncio.to_thread(self._seal.close, message.data, uid)


async def count_sender(senders: SenderStore, request: FinishedRequest) -> Mapping[str, object]:
    """Count a good message for its sender; return the change."""
    scope, contacts, day = Scope.of(request.tenant), await _contacts(senders, request), datetime.now(UTC).date()
    await senders.add(scope, [ContactCount(request.tenant, contact, day, 1) for contact in contacts])
    return _encoded(_SenderChange(counted=tuple(contacts)))


async def delete_sender(senders: SenderStore, request: FinishedRequest) -> Mapping[str, object]:
    """Delete what the tenant knows of the sender, and the new bank accounts of the message; return the change."""
    scope, salt = Scope.of(request.tenant), await senders.salt(Scope.of(request.tenant))
    # A fraud may quote the true account of the correspondent, which is older.
    accounts = account_contacts(request, salt)
    known = await senders.stats(scope, [(request.tenant, account) for account in accounts])
    recent = [account for account in accounts if account in known and known[account].age < KNOWN_AGE]
    contacts = [*sender_contacts(request, salt), *recent]
    return _encoded(_SenderChange(taken=tuple(await senders.remove(scope, request.tenant, contacts))))


async def undo_sender_change(senders: SenderStore, tenant: UUID, change: Mapping[str, object]) -> None:
    decoded, scope = msgspec.convert(change, _SenderChange, strict=False), Scope.of(tenant)
    if decoded.counted:
        await senders.subtract(scope, tenant, decoded.counted)
    await senders.restore(scope, tenant, decoded.taken)


async def _contacts(senders: SenderStore, request: FinishedRequest) -> Sequence[bytes]:
    return sender_contacts(request, await senders.salt(Scope.of(request.tenant)))


def _encoded(change: _SenderChange) -> Mapping[str, object]:
    """Return the change in types that JSON has."""
    return msgspec.convert(msgspec.to_builtins(change), dict[str, object])


def _message(contents: bytes | ReportedMessage | None) -> ReportedMessage | None:
    return ReportedMessage.of(contents) if isinstance(contents, bytes) else contents
