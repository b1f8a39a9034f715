"""Requested releases in PostgreSQL: claimed by one guard, and their result."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from mailwarden.database.pool import Database
from mailwarden.events.catalogue import MessageReleased, first, short
from mailwarden.events.outbox import NewEvent, new_event, record
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.model import HeldMessage, Release, State
from mailwarden.quarantine.store import (
    IN_SCOPE,
    SELECT_MESSAGE,
    HeldAuditEvent,
    message_of,
    record_audit_event,
    require_tenant,
    storable_text,
)

MAX_FAILURE = 500

# Another guard claims the release again after the claim of a guard that died.
_CLAIM = f"""
WITH next AS (
    SELECT message, changed_by FROM quarantine_recipients JOIN quarantine ON uid = message
    WHERE {IN_SCOPE} AND vault = $2 AND state = 'releasing' AND (claimed_until IS NULL OR claimed_until < now())
    ORDER BY changed_at LIMIT 1 FOR UPDATE OF quarantine SKIP LOCKED
)
UPDATE quarantine_recipients AS those SET claimed_until = now() + make_interval(secs => $3)
FROM next WHERE those.message = next.message AND those.changed_by = next.changed_by AND state = 'releasing'
  AND (claimed_until IS NULL OR claimed_until < now())
RETURNING those.message, those.recipient, those.changed_by, those.train
"""  # noqa: S608 -- built from constants
_ONE = f"{SELECT_MESSAGE} AND uid = $2"
_RELEASED = """
UPDATE quarantine_recipients SET state = 'released', failure = '', changed_at = now(), claimed_until = NULL
WHERE message = $1 AND state = 'releasing' AND recipient = ANY ($2::text[]) RETURNING recipient
"""
_FAILED = """
UPDATE quarantine_recipients SET state = 'held', failure = each.failure, changed_at = now(), claimed_until = NULL
FROM unnest($2::text[], $3::text[]) AS each (name, failure)
WHERE message = $1 AND state = 'releasing' AND recipient = each.name
"""
_MISSING = f"UPDATE quarantine SET missing = $3 WHERE {IN_SCOPE} AND uid = $2"  # noqa: S608 -- built from constants


class ReleaseStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, scope: Scope, vault: UUID, seconds: float) -> Release | None:
        """Claim the oldest requested release with its bytes in this vault, for so many seconds."""
        async with self._database.connection() as connection, connection.transaction():
            rows = await connection.fetch(_CLAIM, scope.uids(), vault, seconds)
            if not rows:
                return None
            found = await connection.fetchrow(_ONE, scope.uids(), rows[0]["message"])
        if found is None:
            return None
        names = {str(row["recipient"]) for row in rows}
        message = message_of(found)
        ordered = [each for each in message.in_state(State.RELEASING) if each in names]
        train = any(bool(row["train"]) for row in rows)
        return Release(message, ordered, str(rows[0]["changed_by"]), train)

    async def record_result(self, scope: Scope, release: Release, failures: Mapping[str, str]) -> Sequence[str]:
        """Record the result of a release and return its recipients; failed recipients stay held, with the reason."""
        message, actor = release.message, Actor(release.requested_by)
        require_tenant(scope, message.tenant)
        accepted = [recipient for recipient in release.recipients if recipient not in failures]
        reasons = {name: storable_text(failure)[:MAX_FAILURE] for name, failure in failures.items()}
        async with self._database.connection() as connection, connection.transaction():
            if accepted:
                changed = {str(row["recipient"]) for row in await connection.fetch(_RELEASED, message.uid, accepted)}
                released = [each for each in accepted if each in changed]  # none in a second try that is not needed
                if released:
                    await record(connection, [_released_event(message, released, actor.name)])
                event = HeldAuditEvent(
                    "released", message.uid, message.subject, message.tenant, {"recipients": accepted}
                )
                await record_audit_event(connection, actor, event)
            if reasons:
                await connection.execute(_FAILED, message.uid, list(reasons), list(reasons.values()))
                event = HeldAuditEvent("fail", message.uid, message.subject, message.tenant, {"failures": reasons})
                await record_audit_event(connection, actor, event)
        return accepted

    async def set_missing(self, scope: Scope, message: HeldMessage, *, missing: bool) -> None:
        """Record that the bytes of a message are missing from the vault, or present again."""
        async with self._database.connection() as connection:
            await connection.execute(_MISSING, scope.uids(), message.uid, missing)


def _released_event(message: HeldMessage, recipients: Sequence[str], by: str) -> NewEvent:
    released = MessageReleased(
        ggrid=message.ggrid,
        uid=message.uid,
        verdict=message.verdict,
        sender=short(message.sender),
        recipients=first(recipients),
        recipient_count=len(recipients),
        subject=short(message.subject),
        by=by,
    )
    return new_event(released, message.tenant, message.ggrid)
