"""Held messages in PostgreSQL: stored after their bytes, listed, marked for release, deleted."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.database.pool import Connection, Database, Row, confirm_earlier
from mailwarden.database.rows import read, read_optional
from mailwarden.database.visible import in_scope
from mailwarden.errors import MailwardenError, MessageNotFound, NotReleasable, StorageUnavailable, TenantForbidden
from mailwarden.events.catalogue import MessageDeleted, MessageHeld, first, short
from mailwarden.events.outbox import NewEvent, new_event, record
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.model import (
    DEFAULT,
    NO_FILTER,
    ActionResult,
    HeldFilter,
    HeldMessage,
    HeldRecipient,
    RetentionDays,
    State,
)

# The first value of every statement is the scope: NULL is every tenant, and no tenant is an empty array.
IN_SCOPE = in_scope("quarantine.tenant")
SELECT_MESSAGE = f"""
SELECT uid, tenant, ggrid, vault, address, size, sender, from_address, from_name, subject, verdict, reason, received,
       expires, missing, whole, (
           SELECT jsonb_agg(jsonb_build_object('address', recipient, 'state', state, 'failure', failure,
                                               'changed_by', changed_by, 'changed_at', changed_at) ORDER BY number)
           FROM quarantine_recipients WHERE message = uid
       ) AS recipients
FROM quarantine WHERE {IN_SCOPE}
"""  # noqa: S608 -- built from constants
_RECORD = """
SELECT record_deed($1, tenant, action, subject, $2, $3, details::jsonb)
FROM unnest($4::uuid[], $5::text[], $6::text[], $7::text[]) AS given (tenant, action, subject, details)
"""
_LOCK = "SELECT pg_advisory_xact_lock($1, $2)"
# A server may acknowledge before its disk has the data. A stricter setting stays as it is.
_DURABLY = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
_BODY_LOCKS = 0x6D77_7162  # the class of the advisory locks

_recipients = msgspec.json.Decoder(tuple[HeldRecipient, ...])

Place = tuple[UUID, UUID]  # of a row of history: ggrid, tenant
Recipients = Sequence[str] | None  # None: all that wait

MAX_PAGE = 500
MAX_SUBJECT = 1_000
MAX_REASON = 500
# Tags of messages that the analysis did not cover: a limit was exceeded, or an engine did not finish.
NOT_WHOLE = frozenset({"analysis.structure-limit", "analysis.incomplete"})

_ADD = f"""
WITH days AS (
    SELECT coalesce((SELECT coalesce(quarantine_days ->> $11, quarantine_days ->> '{DEFAULT}')::integer
                     FROM tenants WHERE uid = $2), $13::integer) AS days
), kept AS (
    INSERT INTO quarantine (uid, tenant, ggrid, vault, address, size, sender, from_address, from_name, subject,
                            verdict, received, expires, whole, reason)
    SELECT $1::uuid, $2::uuid, $3::uuid, $4::uuid, $5::bytea, $6::bigint, $7::text, $8::text, $9::text, $10::text,
           $11::text, $12::timestamptz, $12::timestamptz + make_interval(days => days), $16::boolean, $17::text
    FROM days
    ON CONFLICT (tenant, ggrid) DO NOTHING RETURNING uid
), those AS (
    INSERT INTO quarantine_recipients (message, number, recipient, folded)
    SELECT uid, number, recipient, folded FROM kept, unnest($14::text[], $15::text[])
    WITH ORDINALITY AS each (recipient, folded, number)
)
SELECT coalesce((SELECT uid FROM kept), (SELECT uid FROM quarantine WHERE tenant = $2 AND ggrid = $3)) AS uid,
       EXISTS (SELECT FROM kept) AS is_new
"""  # noqa: S608 -- built from constants
HELD = f"{SELECT_MESSAGE} AND uid = ANY ($2::uuid[])"
# In the same order everywhere, so that two actions on the same messages cannot deadlock.
_LOCKED = f"{HELD} ORDER BY uid FOR UPDATE"
_PLACES = "SELECT * FROM unnest($2::uuid[], $3::uuid[])"
_OF_ROWS = f"{SELECT_MESSAGE} AND (ggrid, tenant) IN ({_PLACES})"
_STATES = f"""
SELECT quarantine.tenant, quarantine.ggrid, array_agg(DISTINCT state) AS states
FROM unnest($2::uuid[], $3::uuid[]) AS place (ggrid, tenant) JOIN quarantine USING (tenant, ggrid)
JOIN quarantine_recipients ON message = uid WHERE {IN_SCOPE} GROUP BY 1, 2
"""  # noqa: S608 -- built from constants
_COUNTS = f"""
SELECT verdict, count(*) AS messages FROM quarantine WHERE {IN_SCOPE} AND ($2::uuid IS NULL OR tenant = $2)
  AND EXISTS (SELECT FROM quarantine_recipients WHERE message = uid AND state IN ('held', 'releasing'))
GROUP BY verdict
"""  # noqa: S608 -- built from constants
_REQUEST_RELEASE = """
UPDATE quarantine_recipients SET state = 'releasing', failure = '', changed_by = $3, changed_at = now(), train = $4
WHERE message = ANY ($1::uuid[]) AND CASE WHEN $2::text[] IS NULL THEN state = 'held'
                            ELSE folded = ANY ($2) AND state IN ('held', 'released') END
RETURNING message, recipient
"""
# A release that no guard has claimed can still be deleted.
_DELETE = """
UPDATE quarantine_recipients SET state = 'deleted', failure = '', changed_by = $3, changed_at = now()
WHERE message = ANY ($1::uuid[]) AND ($2::text[] IS NULL OR folded = ANY ($2))
  AND (state = 'held' OR state = 'releasing' AND (claimed_until IS NULL OR claimed_until < now()))
RETURNING message, recipient
"""
_GIVE_UP = """
WITH given AS (
    SELECT uid, vault, tenant, address FROM quarantine WHERE uid = ANY ($1::uuid[]) AND address IS NOT NULL
    AND NOT EXISTS (SELECT FROM quarantine_recipients WHERE message = uid AND state = ANY ($2::text[]))
), left_over AS (
    INSERT INTO quarantine_leavings SELECT DISTINCT vault, tenant, address FROM given ORDER BY 1, 2, 3
    ON CONFLICT DO NOTHING
)
UPDATE quarantine SET address = NULL WHERE uid IN (SELECT uid FROM given)
"""


class HeldAuditEvent(Struct, frozen=True):
    """An audit event about a held message."""

    action: str
    message: UUID
    subject: str
    tenant: UUID
    details: dict[str, object]


def require_tenant(scope: Scope, tenant: UUID) -> None:
    if not scope.allows(tenant):
        raise TenantForbidden("You have no access to this tenant.")


async def lock_body(connection: Connection, address: bytes) -> None:
    """Lock a body until the transaction ends, against removal and against new references."""
    await connection.fetchval(_LOCK, _BODY_LOCKS, int.from_bytes(address[:4], "big", signed=True))


async def commit_durably(connection: Connection) -> None:
    """Make this transaction's commit wait for the server's disk."""
    await connection.fetchval(_DURABLY)


async def record_audit_event(connection: Connection, actor: Actor, *events: HeldAuditEvent) -> None:
    """Write the events inside the transaction of the change."""
    await connection.execute(
        _RECORD,
        actor.name,
        actor.address,
        actor.request_id,
        [event.tenant for event in events],
        [f"quarantine.{event.action}" for event in events],
        [event.subject[:200] for event in events],
        [msgspec.json.encode({"uid": event.message, **event.details}).decode() for event in events],
    )


def message_of(row: Row) -> HeldMessage:
    return HeldMessage(
        uid=read(row, "uid", UUID),
        tenant=read(row, "tenant", UUID),
        ggrid=read(row, "ggrid", UUID),
        vault=read(row, "vault", UUID),
        address=read_optional(row, "address", bytes),
        size=read(row, "size", int),
        sender=str(row["sender"]),
        from_address=str(row["from_address"]),
        from_name=str(row["from_name"]),
        subject=str(row["subject"]),
        verdict=Verdict(str(row["verdict"])),
        reason=str(row["reason"]),
        received=read(row, "received", datetime),
        expires=read(row, "expires", datetime),
        missing=bool(row["missing"]),
        recipients=_recipients.decode(str(row["recipients"] or "[]")),
        whole=bool(row["whole"]),
    )


def fold(address: str) -> str:
    """Return the form of an address for comparison."""
    return storable_text(address).strip().lower()


def storable_text(text: str) -> str:
    """Return the text without characters that PostgreSQL cannot store."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _in_domain(address: str, domain: str) -> str:
    """Return the condition that an address is in `@domain` or in a subdomain."""
    return f"right({address}, length({domain})) IN ({domain}, '.' || substr({domain}, 2))"


# `@domain` matches the domain and its subdomains, any other value the whole address.
_PAGE = f"""
{SELECT_MESSAGE}
  AND ($2::uuid IS NULL OR tenant = $2) AND ($3::text IS NULL OR verdict = $3)
  AND ($4::text IS NULL OR EXISTS (
      SELECT FROM quarantine_recipients WHERE message = uid
      AND (folded = $4 OR $4 LIKE '@%' AND {_in_domain("folded", "$4")})))
  AND ($5::text IS NULL OR lower(sender) = $5 OR lower(from_address) = $5
       OR $5 LIKE '@%' AND ({_in_domain("lower(sender)", "$5")} OR {_in_domain("lower(from_address)", "$5")}))
  AND ($6::text IS NULL OR position(lower($6) IN lower(subject)) > 0)
  AND ($7::text IS NULL OR EXISTS (SELECT FROM quarantine_recipients WHERE message = uid AND state = $7))
  AND ($8::timestamptz IS NULL OR received >= $8)
  AND ($9::timestamptz IS NULL OR (received, uid) < ($9, $10::uuid))
ORDER BY received DESC, uid DESC LIMIT $11
"""  # noqa: S608 -- built from constants


class BodyGone(Exception):
    """The bytes are no longer in the vault and must be stored again."""


class QuarantineStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self,
        scope: Scope,
        finished: FinishedRequest,
        *,
        uid: UUID,
        vault: UUID,
        address: bytes,
        days: RetentionDays,
        body_exists: Callable[[], Awaitable[bool]],
    ) -> UUID:
        """Store the row of a message with bytes in the vault; return its uid, or raise BodyGone.

        `body_exists` runs under the lock that a removal takes as well.
        """
        require_tenant(scope, finished.tenant)
        summary, verdict = finished.summary, finished.judgement.verdict
        recipients = [storable_text(recipient) for recipient in finished.envelope.recipients]
        async with self._transaction() as connection:
            await commit_durably(connection)
            await lock_body(connection, address)
            if not await body_exists():
                raise BodyGone
            row = await connection.fetchrow(
                _ADD, uid, finished.tenant, finished.ggrid, vault, address, summary.size,
                storable_text(finished.envelope.sender), storable_text(summary.from_address),
                storable_text(summary.from_name), storable_text(summary.subject)[:MAX_SUBJECT], verdict,
                finished.created, days.for_verdict(verdict),
                recipients, [fold(recipient) for recipient in recipients], NOT_WHOLE.isdisjoint(finished.tags),
                storable_text(finished.judgement.short)[:MAX_REASON],
            )  # fmt: skip
            assert row is not None
            kept = read(row, "uid", UUID)
            if row["is_new"]:  # another guard, or an earlier attempt, may have stored it
                await record(connection, [_held_event(kept, finished)])
            else:
                await confirm_earlier(connection)
        return kept

    async def find(self, scope: Scope, uid: UUID) -> HeldMessage:
        """Return one message; raise MessageNotFound for a message outside the scope, too."""
        return _only(await self.held(scope, [uid]))

    async def held(self, scope: Scope, uids: Sequence[UUID]) -> Mapping[UUID, HeldMessage]:
        """Return these messages in their order; those outside the scope are left out."""
        async with self._database.connection() as connection:
            return _messages(scope, uids, await connection.fetch(HELD, scope.uids(), uids))

    async def of_rows(self, scope: Scope, places: Sequence[Place]) -> Mapping[Place, HeldMessage]:
        """Return the held messages of these rows of history."""
        ggrids, tenants = [ggrid for ggrid, _ in places], [tenant for _, tenant in places]
        async with self._database.connection() as connection:
            messages = map(message_of, await connection.fetch(_OF_ROWS, scope.uids(), ggrids, tenants))
        return {(message.ggrid, message.tenant): message for message in messages if scope.allows(message.tenant)}

    async def page(self, scope: Scope, filters: HeldFilter = NO_FILTER, limit: int = 100) -> Sequence[HeldMessage]:
        """Return the matching messages, newest first."""
        after = filters.after
        asked = (
            filters.tenant, filters.verdict, filters.recipient and fold(filters.recipient),
            filters.sender and fold(filters.sender), filters.text and storable_text(filters.text), filters.state,
            filters.since, after and after.received, after and after.uid,
        )  # fmt: skip
        async with self._database.connection() as connection:
            rows = await connection.fetch(_PAGE, scope.uids(), *asked, min(limit, MAX_PAGE))
        return [message_of(row) for row in rows]

    async def states(self, scope: Scope, places: Sequence[Place]) -> Mapping[Place, State]:
        """Return the state of each of these messages; of several, the first of State."""
        ggrids, tenants = [ggrid for ggrid, _ in places], [tenant for _, tenant in places]
        async with self._database.connection() as connection:
            rows = await connection.fetch(_STATES, scope.uids(), ggrids, tenants)
        order = list(State)
        return {
            (read(row, "ggrid", UUID), read(row, "tenant", UUID)): min(
                (State(str(state)) for state in read(row, "states", list)), key=order.index
            )
            for row in rows
        }

    async def counts(self, scope: Scope, tenant: UUID | None = None) -> Mapping[Verdict, int]:
        """Return the number of held messages by verdict."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_COUNTS, scope.uids(), tenant)
        return {Verdict(str(row["verdict"])): read(row, "messages", int) for row in rows}

    async def request_release(
        self, scope: Scope, uid: UUID, recipients: Recipients, actor: Actor, *, train: bool = False
    ) -> HeldMessage:
        """Request the release to all held recipients, or to those given; a guard delivers, and trains if `train`."""
        async with self._transaction() as connection:
            result = await _request_release(connection, scope, [uid], recipients, actor, train=train)
            return await _changed(connection, scope, *result)

    async def request_releases(
        self, scope: Scope, uids: Sequence[UUID], actor: Actor, *, train: bool = False
    ) -> Sequence[ActionResult]:
        """Request the release of each message to all its held recipients, in one transaction."""
        async with self._transaction() as connection:
            return await _request_release(connection, scope, uids, None, actor, train=train)

    async def delete(self, scope: Scope, uid: UUID, recipients: Recipients, actor: Actor) -> HeldMessage:
        """Delete a message for all held recipients, or for those given; unneeded bytes are removed later."""
        async with self._transaction() as connection:
            return await _changed(connection, scope, *await _delete(connection, scope, [uid], recipients, actor))

    async def delete_several(self, scope: Scope, uids: Sequence[UUID], actor: Actor) -> Sequence[ActionResult]:
        """Delete each message for all its held recipients, in one transaction."""
        async with self._transaction() as connection:
            return await _delete(connection, scope, uids, None, actor)

    async def record_export(self, scope: Scope, uid: UUID, actor: Actor, action: str = "export") -> HeldMessage:
        """Record the export or preview of a message, before its bytes are returned."""
        async with self._database.connection() as connection, connection.transaction():
            found = _only(await _locked(connection, scope, [uid]))
            if found.address is None:
                raise _not_kept()
            await record_audit_event(connection, actor, _event(action, found, {}))
        return found

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        """Run the block in one transaction; StorageUnavailable says whether the commit is in doubt."""
        commits = False
        try:
            async with self._database.connection() as connection, connection.transaction():
                yield connection
                commits = True
        except StorageUnavailable as error:
            error.in_doubt = commits
            raise


async def _request_release(
    connection: Connection, scope: Scope, uids: Sequence[UUID], recipients: Recipients, actor: Actor, *, train: bool
) -> Sequence[ActionResult]:
    messages, errors = await _lock(connection, scope, uids, partial(check_release, recipients=recipients))
    asked = [uid for uid in messages if uid not in errors]
    names = _names(await connection.fetch(_REQUEST_RELEASE, asked, _folded(recipients), actor.name, train))
    errors |= {uid: _no_recipient_waits() for uid in asked if uid not in names}
    details: dict[str, object] = {"train": True} if train else {}
    events = [_event("release", messages[uid], {"recipients": who, **details}) for uid, who in names.items()]
    await record_audit_event(connection, actor, *events)
    return [ActionResult(uid, messages.get(uid), errors.get(uid)) for uid in uids]


async def _delete(
    connection: Connection, scope: Scope, uids: Sequence[UUID], recipients: Recipients, actor: Actor
) -> Sequence[ActionResult]:
    messages, errors = await _lock(connection, scope, uids, partial(check_deletion, recipients=recipients))
    asked = [uid for uid in messages if uid not in errors]
    names = _names(await connection.fetch(_DELETE, asked, _folded(recipients), actor.name))
    for uid in asked:
        if uid not in names and messages[uid].in_state(State.RELEASING):
            errors[uid] = NotReleasable("A guard is releasing this message. Try again in a few seconds.")
        elif uid not in names and recipients is not None:
            errors[uid] = _no_recipient_waits()
    deleted = [(messages[uid], names.get(uid, [])) for uid in asked if uid not in errors]
    # Without recipients the stored copy for a second release goes as well.
    needed = [State.HELD, State.RELEASING] + ([] if recipients is None else [State.RELEASED])
    await connection.execute(_GIVE_UP, [message.uid for message, _ in deleted], needed)
    events = [_event("delete", message, {"recipients": who}) for message, who in deleted]
    await record_audit_event(connection, actor, *events)
    await record(connection, [deleted_event(message, who, actor.name, "request") for message, who in deleted])
    return [ActionResult(uid, messages.get(uid), errors.get(uid)) for uid in uids]


async def _changed(connection: Connection, scope: Scope, result: ActionResult) -> HeldMessage:
    """Return the message as it is now, or raise the error of the action."""
    if result.error is not None:
        raise result.error
    return _only(await _locked(connection, scope, [result.uid]))


async def _lock(
    connection: Connection, scope: Scope, uids: Sequence[UUID], check: Callable[[HeldMessage], None]
) -> tuple[Mapping[UUID, HeldMessage], dict[UUID, MailwardenError]]:
    """Lock the messages and return them, with the errors of those that fail the check or do not exist."""
    messages = await _locked(connection, scope, uids)
    errors: dict[UUID, MailwardenError] = {uid: _not_found() for uid in uids if uid not in messages}
    for message in messages.values():
        try:
            check(message)
        except NotReleasable as error:
            errors[message.uid] = error
    return messages, errors


def _names(rows: Sequence[Row]) -> dict[UUID, list[str]]:
    """Return the changed recipients of each message."""
    names: dict[UUID, list[str]] = {}
    for row in rows:
        names.setdefault(read(row, "message", UUID), []).append(str(row["recipient"]))
    return names


def _held_event(uid: UUID, finished: FinishedRequest) -> NewEvent:
    summary, recipients = finished.summary, finished.envelope.recipients
    held = MessageHeld(
        ggrid=finished.ggrid,
        uid=uid,
        verdict=finished.judgement.verdict,
        sender=short(finished.envelope.sender),
        recipients=first(recipients),
        recipient_count=len(recipients),
        from_address=short(summary.from_address),
        subject=short(summary.subject),
        size=summary.size,
    )
    return new_event(held, finished.tenant, finished.ggrid)


def deleted_event(message: HeldMessage, recipients: Sequence[str], by: str, reason: str) -> NewEvent:
    """Return the event of a message that was deleted for these recipients."""
    deleted = MessageDeleted(
        ggrid=message.ggrid,
        uid=message.uid,
        verdict=message.verdict,
        sender=short(message.sender),
        recipients=first(recipients),
        recipient_count=len(recipients),
        subject=short(message.subject),
        by=by,
        reason=reason,
    )
    return new_event(deleted, message.tenant, message.ggrid)


def check_release(message: HeldMessage, recipients: Recipients) -> None:
    """Raise NotReleasable if the message cannot be released to any of the recipients, or to any at all."""
    wanted = _named(message, recipients)
    if message.verdict is Verdict.MALWARE:
        raise NotReleasable(
            "Malware is never delivered. If the file is harmless, add its hash to `file-hash-allow` "
            "and have the message sent again."
        )
    if not message.is_kept:
        raise _not_kept()
    # A recipient given by address may receive it a second time.
    if not _is_for(message, wanted, (State.HELD,) if wanted is None else (State.HELD, State.RELEASED)):
        raise _no_recipient_waits()


def check_deletion(message: HeldMessage, recipients: Recipients) -> None:
    """Raise NotReleasable if the message is not held for any of the recipients, or for any at all."""
    wanted = _named(message, recipients)
    waits = _is_for(message, wanted, (State.HELD, State.RELEASING))
    if not waits and (wanted is not None or message.address is None):
        raise _no_recipient_waits()


def _is_for(message: HeldMessage, wanted: Sequence[str] | None, states: Sequence[State]) -> bool:
    """Return whether one of the recipients is in one of the states."""
    folded = None if wanted is None else frozenset(wanted)
    return any(
        recipient.state in states and (folded is None or fold(recipient.address) in folded)
        for recipient in message.recipients
    )


async def _locked(connection: Connection, scope: Scope, uids: Sequence[UUID]) -> Mapping[UUID, HeldMessage]:
    return _messages(scope, uids, await connection.fetch(_LOCKED, scope.uids(), uids))


def _messages(scope: Scope, uids: Sequence[UUID], rows: Sequence[Row]) -> Mapping[UUID, HeldMessage]:
    """Return the messages in the order of the uids; the tenant is checked once more."""
    found = {message.uid: message for message in map(message_of, rows) if scope.allows(message.tenant)}
    return {uid: found[uid] for uid in uids if uid in found}


def _only(messages: Mapping[UUID, HeldMessage]) -> HeldMessage:
    if not messages:
        raise _not_found()
    (message,) = messages.values()
    return message


def _named(message: HeldMessage, recipients: Recipients) -> list[str] | None:
    """Return the folded recipients, None for all; raise NotReleasable for other addresses."""
    known, wanted = {fold(recipient.address) for recipient in message.recipients}, _folded(recipients)
    if wanted is not None and not (wanted and known.issuperset(wanted)):
        raise NotReleasable("Give recipients of this message, or none for all held recipients.")
    return wanted


def _event(action: str, message: HeldMessage, details: dict[str, object]) -> HeldAuditEvent:
    return HeldAuditEvent(action, message.uid, message.subject, message.tenant, details)


def _folded(addresses: Recipients) -> list[str] | None:
    return None if addresses is None else [fold(address) for address in addresses]


def _no_recipient_waits() -> NotReleasable:
    return NotReleasable("The message is not held for any of these recipients any more.")


def _not_kept() -> NotReleasable:
    return NotReleasable("The message is no longer stored.")


def _not_found() -> MessageNotFound:
    return MessageNotFound("There is no such message in quarantine.")
