"""Held messages in PostgreSQL: written once their bytes are safe, found, asked to be released, deleted."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast
from uuid import UUID

from mailwarden.database.pool import Connection, Database
from mailwarden.errors import MessageNotFound, NotReleasable
from mailwarden.model.actor import Actor
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.quarantine.held import DEFAULT, EVERYTHING, Days, HeldMessage, Question, State
from mailwarden.quarantine.rows import (
    MESSAGE,
    MINE,
    Deed,
    commit_durably,
    fold,
    lock_body,
    message_of,
    plain,
    record,
    require,
    uids_of,
)

MAX_PAGE = 500
MAX_SUBJECT = 1_000
# The tags of what was not analyzed whole: built beyond a limit, or an engine did not finish.
NOT_WHOLE = frozenset({"analysis.structure-limit", "analysis.incomplete"})

_ADD = f"""
WITH days AS (
    SELECT coalesce((SELECT coalesce(quarantine_days ->> $11, quarantine_days ->> '{DEFAULT}')::integer
                     FROM tenants WHERE uid = $2), $13::integer) AS days
), kept AS (
    INSERT INTO quarantine (uid, tenant, ggrid, vault, address, size, sender, from_address, from_name, subject,
                            verdict, received, expires, whole)
    SELECT $1::uuid, $2::uuid, $3::uuid, $4::uuid, $5::bytea, $6::bigint, $7::text, $8::text, $9::text, $10::text,
           $11::text, $12::timestamptz, $12::timestamptz + make_interval(days => days), $16::boolean FROM days
    ON CONFLICT (tenant, ggrid) DO NOTHING RETURNING uid
), those AS (
    INSERT INTO quarantine_recipients (message, number, recipient, folded)
    SELECT uid, number, recipient, folded FROM kept, unnest($14::text[], $15::text[])
    WITH ORDINALITY AS each (recipient, folded, number)
)
SELECT coalesce((SELECT uid FROM kept), (SELECT uid FROM quarantine WHERE tenant = $2 AND ggrid = $3))
"""  # noqa: S608 -- put together from the constants above
_ONE = f"{MESSAGE} AND uid = $2"
_LOCKED = f"{MESSAGE} AND uid = $2 FOR UPDATE"
_OF_GGRID = f"{MESSAGE} AND tenant = $2 AND ggrid = $3"
# An address is compared whole, or by its domain where only that is given.
_PAGE = f"""
{MESSAGE}
  AND ($2::uuid IS NULL OR tenant = $2) AND ($3::text IS NULL OR verdict = $3)
  AND ($4::text IS NULL OR EXISTS (
      SELECT FROM quarantine_recipients WHERE message = uid
      AND (folded = $4 OR $4 LIKE '@%' AND right(folded, length($4)) = $4)))
  AND ($5::text IS NULL OR lower(sender) = $5 OR lower(from_address) = $5
       OR $5 LIKE '@%' AND $5 IN (right(lower(sender), length($5)), right(lower(from_address), length($5))))
  AND ($6::text IS NULL OR position(lower($6) IN lower(subject)) > 0)
  AND ($7::text IS NULL OR EXISTS (SELECT FROM quarantine_recipients WHERE message = uid AND state = $7))
  AND ($8::timestamptz IS NULL OR received >= $8)
  AND ($9::timestamptz IS NULL OR (received, uid) < ($9, $10::uuid))
ORDER BY received DESC, uid DESC LIMIT $11
"""  # noqa: S608 -- put together from the constants above
_COUNTS = f"""
SELECT verdict, count(*) AS messages FROM quarantine WHERE {MINE} AND ($2::uuid IS NULL OR tenant = $2)
  AND EXISTS (SELECT FROM quarantine_recipients WHERE message = uid AND state IN ('held', 'releasing'))
GROUP BY verdict
"""  # noqa: S608 -- put together from the constants above
_ASK = """
UPDATE quarantine_recipients SET state = 'releasing', failure = '', changed_by = $3, changed_at = now()
WHERE message = $1 AND CASE WHEN $2::text[] IS NULL THEN state = 'held'
                            ELSE folded = ANY ($2) AND state IN ('held', 'released') END
RETURNING recipient
"""
# A release that no guard has taken on yet can still be taken back.
_DELETE = """
UPDATE quarantine_recipients SET state = 'deleted', failure = '', changed_by = $3, changed_at = now()
WHERE message = $1 AND ($2::text[] IS NULL OR folded = ANY ($2))
  AND (state = 'held' OR state = 'releasing' AND (claimed_until IS NULL OR claimed_until < now()))
RETURNING recipient
"""
_WANTED = "SELECT EXISTS (SELECT FROM quarantine_recipients WHERE message = $1 AND state = ANY ($2::text[]))"
_GIVE_UP = """
WITH given AS (SELECT vault, tenant, address FROM quarantine WHERE uid = $1 AND address IS NOT NULL),
left_over AS (INSERT INTO quarantine_leavings SELECT vault, tenant, address FROM given ON CONFLICT DO NOTHING)
UPDATE quarantine SET address = NULL WHERE uid = $1
"""


class BodyGone(Exception):
    """The bytes are not in the vault any more: they are to be put there again."""


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
        days: Days,
        is_there: Callable[[], Awaitable[bool]],
    ) -> UUID:
        """Keep the row of a message whose bytes are in the vault; return its uid, or raise BodyGone.

        Whether they are there is asked under the lock that whoever removes them takes.
        """
        require(scope, finished.tenant)
        summary, verdict = finished.summary, finished.judgement.verdict
        recipients = [plain(each) for each in finished.envelope.recipients]
        async with self._database.connection() as connection, connection.transaction():
            await commit_durably(connection)
            await lock_body(connection, address)
            if not await is_there():
                raise BodyGone
            kept = await connection.fetchval(
                _ADD, uid, finished.tenant, finished.ggrid, vault, address, summary.size,
                plain(finished.envelope.sender), plain(summary.from_address), plain(summary.from_name),
                plain(summary.subject)[:MAX_SUBJECT], verdict, finished.created, days.for_verdict(verdict),
                recipients, [fold(each) for each in recipients], NOT_WHOLE.isdisjoint(finished.tags),
            )  # fmt: skip
        return cast("UUID", kept)

    async def find(self, scope: Scope, uid: UUID) -> HeldMessage:
        """Return one message; a foreign one is answered like one that does not exist."""
        return await self._find(_ONE, uids_of(scope), uid)

    async def of_ggrid(self, scope: Scope, tenant: UUID, ggrid: UUID) -> HeldMessage:
        """Return what is held of one analysis for one tenant; other tenants may have a message of the same ggrid."""
        return await self._find(_OF_GGRID, uids_of(scope), tenant, ggrid)

    async def page(self, scope: Scope, question: Question = EVERYTHING, limit: int = 100) -> Sequence[HeldMessage]:
        """Return the messages that are wanted, the newest first."""
        after = question.after
        asked = (
            question.tenant, question.verdict, _folded(question.recipient), _folded(question.sender),
            None if question.text is None else plain(question.text), question.state, question.since,
            after and after.received, after and after.uid,
        )  # fmt: skip
        async with self._database.connection() as connection:
            rows = await connection.fetch(_PAGE, uids_of(scope), *asked, min(limit, MAX_PAGE))
        return [message_of(row) for row in rows]

    async def counts(self, scope: Scope, tenant: UUID | None = None) -> Mapping[Verdict, int]:
        """Return how many messages wait for somebody, by verdict."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_COUNTS, uids_of(scope), tenant)
        return {Verdict(str(row["verdict"])): cast("int", row["messages"]) for row in rows}

    async def ask_release(self, scope: Scope, uid: UUID, recipients: Sequence[str] | None, actor: Actor) -> HeldMessage:
        """Have a message released to all who wait for it, or to those named; a guard does it."""
        async with self._database.connection() as connection, connection.transaction():
            before = await _locked(connection, scope, uid)
            rows = await connection.fetch(_ASK, uid, check_release(before, recipients), actor.name)
            if not rows:
                raise _nobody_waits()
            names = [str(row["recipient"]) for row in rows]
            await record(connection, actor, _deed("release", before, {"recipients": names}))
            return await _locked(connection, scope, uid)

    async def delete(self, scope: Scope, uid: UUID, recipients: Sequence[str] | None, actor: Actor) -> HeldMessage:
        """Delete a message for all who wait for it, or for those named; its bytes go when nobody needs them."""
        async with self._database.connection() as connection, connection.transaction():
            before = await _locked(connection, scope, uid)
            rows = await connection.fetch(_DELETE, uid, check_deletion(before, recipients), actor.name)
            if not rows and before.in_state(State.RELEASING):
                raise NotReleasable("A guard releases this message just now.")
            if not rows and recipients is not None:
                raise _nobody_waits()
            # Who deletes the message as a whole means the copy of those who have it already as well.
            needed = [State.HELD, State.RELEASING] + ([] if recipients is None else [State.RELEASED])
            if not await connection.fetchval(_WANTED, uid, needed):
                await connection.execute(_GIVE_UP, uid)
            names = [str(row["recipient"]) for row in rows]
            await record(connection, actor, _deed("delete", before, {"recipients": names}))
            return await _locked(connection, scope, uid)

    async def note_export(self, scope: Scope, uid: UUID, actor: Actor, action: str = "export") -> HeldMessage:
        """Tell the audit that somebody takes the message itself out, or sees it, before they have it."""
        async with self._database.connection() as connection, connection.transaction():
            found = await _locked(connection, scope, uid)
            if found.address is None:
                raise _not_kept()
            await record(connection, actor, _deed(action, found, {}))
        return found

    async def _find(self, statement: str, *values: object) -> HeldMessage:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statement, *values)
        if row is None:
            raise _not_found()
        return message_of(row)


def check_release(message: HeldMessage, recipients: Sequence[str] | None) -> list[str] | None:
    """Return the recipients as they are compared, None for all; raise NotReleasable where there is nothing to do."""
    wanted = _named(message, recipients)
    if message.verdict is Verdict.MALWARE:
        raise NotReleasable(
            "Malware is never delivered. If the file is harmless, add its hash to `file-hash-allow` "
            "and have the message sent again."
        )
    if not message.is_kept:
        raise _not_kept()
    # Who is named may have it a second time.
    if not _is_for(message, wanted, (State.HELD,) if wanted is None else (State.HELD, State.RELEASED)):
        raise _nobody_waits()
    return wanted


def check_deletion(message: HeldMessage, recipients: Sequence[str] | None) -> list[str] | None:
    """Return the recipients as they are compared, None for all; raise NotReleasable where there is nothing to do."""
    wanted = _named(message, recipients)
    waits = _is_for(message, wanted, (State.HELD, State.RELEASING))
    if not waits and (wanted is not None or message.address is None):
        raise _nobody_waits()
    return wanted


def _is_for(message: HeldMessage, wanted: Sequence[str] | None, states: Sequence[State]) -> bool:
    """Tell whether the message is in one of the states for one of those who are wanted."""
    meant = None if wanted is None else frozenset(wanted)
    return any(each.state in states and (meant is None or fold(each.address) in meant) for each in message.recipients)


async def _locked(connection: Connection, scope: Scope, uid: UUID) -> HeldMessage:
    row = await connection.fetchrow(_LOCKED, uids_of(scope), uid)
    if row is None:
        raise _not_found()
    return message_of(row)


def _named(message: HeldMessage, recipients: Sequence[str] | None) -> list[str] | None:
    """Return the recipients as they are compared, or say who is none."""
    if recipients is None:
        return None
    known = {fold(each.address) for each in message.recipients}
    wanted = [fold(each) for each in recipients]
    if not wanted or not known.issuperset(wanted):
        raise NotReleasable("Name recipients of this message, or none to mean all who wait for it.")
    return wanted


def _deed(action: str, message: HeldMessage, details: dict[str, object]) -> Deed:
    return Deed(action, message.uid, message.subject, message.tenant, details)


def _folded(address: str | None) -> str | None:
    return None if address is None else fold(address)


def _nobody_waits() -> NotReleasable:
    return NotReleasable("No recipient waits for this message.")


def _not_kept() -> NotReleasable:
    return NotReleasable("The message itself is not kept any more.")


def _not_found() -> MessageNotFound:
    return MessageNotFound("There is no such message in quarantine.")
