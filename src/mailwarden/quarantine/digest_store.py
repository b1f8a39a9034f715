"""The digests in PostgreSQL: one guard claims the digest of a recipient for a day."""

from collections.abc import Sequence
from datetime import date, datetime
from uuid import UUID

from mailwarden.database.clock import read_now
from mailwarden.database.pool import Connection, Database, Row, confirm_earlier
from mailwarden.database.rows import read
from mailwarden.errors import NotReleasable
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.digest import Digest, DigestJob, DigestLink, HeldForRecipient
from mailwarden.quarantine.model import BY_RECIPIENT, State
from mailwarden.quarantine.store import (
    IN_SCOPE,
    SELECT_MESSAGE,
    HeldAuditEvent,
    fold,
    message_of,
    record_audit_event,
    require_tenant,
)

FIRST_JOB = DigestJob(UUID(int=0), "")  # sorts before every other

MAX_MESSAGES = 10_000  # messages per digest; the next digest has the rest

_IN_SCOPE = "($1::uuid[] IS NULL OR quarantine_digests.tenant = ANY ($1))"
_FORGET = f"DELETE FROM quarantine_digests WHERE {_IN_SCOPE} AND (tried IS NULL OR tried < $2)"  # noqa: S608 -- built from constants
_PREPARE = f"""
INSERT INTO quarantine_digests (tenant, recipient)
SELECT DISTINCT quarantine.tenant, folded FROM quarantine_recipients
JOIN quarantine ON quarantine.uid = message JOIN tenants ON tenants.uid = quarantine.tenant
WHERE {IN_SCOPE} AND quarantine_digest AND state = 'held' AND told_at IS NULL AND received < $2 AND expires > now()
ON CONFLICT DO NOTHING
"""  # noqa: S608 -- built from constants
_LOCK_PREPARE = "SELECT pg_advisory_xact_lock($1)"
_PREPARING = 0x6D77_7164  # the key of the lock
_TAKE = f"""
WITH next AS (
    SELECT tenant, recipient FROM quarantine_digests JOIN tenants ON tenants.uid = tenant
    WHERE {_IN_SCOPE} AND quarantine_digest AND (tried IS NULL OR tried < $2) AND (tenant, recipient) > ($3::uuid, $4)
    ORDER BY tenant, recipient LIMIT 1 FOR UPDATE OF quarantine_digests SKIP LOCKED
)
UPDATE quarantine_digests AS those SET tried = $2 FROM next
WHERE those.tenant = next.tenant AND those.recipient = next.recipient RETURNING those.tenant, those.recipient
"""  # noqa: S608 -- built from constants
_GIVE_BACK = "UPDATE quarantine_digests SET tried = NULL WHERE tenant = $1 AND recipient = $2"
_UNREPORTED = """
SELECT quarantine.uid, min(number) AS number, min(recipient) AS recipient
FROM quarantine_recipients JOIN quarantine ON quarantine.uid = message
WHERE quarantine.tenant = $1 AND folded = $2 AND state = 'held' AND told_at IS NULL AND received < $3
  AND expires > now()
GROUP BY quarantine.uid, received ORDER BY received DESC, quarantine.uid DESC LIMIT $4
"""
_THOSE = f"{SELECT_MESSAGE} AND uid = ANY ($2::uuid[]) ORDER BY received DESC, uid DESC"
_SET_REPORTED = """
UPDATE quarantine_recipients SET told_at = now() FROM quarantine
WHERE uid = message AND tenant = $1 AND folded = $2 AND message = ANY ($3::uuid[])
"""
# Links end when the tenant switches digests off.
_LINKED = f"""
{SELECT_MESSAGE} AND uid = $2 AND expires > now()
AND EXISTS (SELECT FROM tenants WHERE tenants.uid = quarantine.tenant AND quarantine_digest)
"""
_RECIPIENT = "SELECT recipient, state FROM quarantine_recipients WHERE message = $1 AND number = $2"
_REQUEST = """
UPDATE quarantine_recipients SET state = 'releasing', failure = '', changed_by = $3, changed_at = now(), train = false
WHERE message = $1 AND folded = $2 AND state = 'held'
"""


class DigestStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def prepare(self, scope: Scope, day: date, until: datetime) -> None:
        """Create the digests of a day for recipients with messages that no digest has reported."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.fetchval(_LOCK_PREPARE, _PREPARING)
            await read_now(connection)  # raises if this host's clock is wrong
            await connection.execute(_FORGET, scope.uids(), day)
            await connection.execute(_PREPARE, scope.uids(), until)

    async def take(self, scope: Scope, day: date, after: DigestJob = FIRST_JOB) -> DigestJob | None:
        """Claim the next digest of the day after the given one, or return None.

        No other guard gets it, and it is not tried again before the next day.
        """
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_TAKE, scope.uids(), day, after.tenant, after.recipient)
        return None if row is None else DigestJob(read(row, "tenant", UUID), str(row["recipient"]))

    async def give_back(self, scope: Scope, job: DigestJob) -> None:
        """Allow another claim on the same day, because the digest was not tried."""
        require_tenant(scope, job.tenant)
        async with self._database.connection() as connection:
            await connection.execute(_GIVE_BACK, job.tenant, job.recipient)

    async def collect(self, scope: Scope, job: DigestJob, until: datetime, listed: int) -> Digest:
        """Return the messages that no digest has reported, so many with details."""
        require_tenant(scope, job.tenant)
        folded = fold(job.recipient)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_UNREPORTED, job.tenant, folded, until, MAX_MESSAGES)
            numbers = {read(row, "uid", UUID): read(row, "number", int) for row in rows}
            first = list(numbers)[:listed]
            found = await connection.fetch(_THOSE, [job.tenant], first)
        address = str(rows[0]["recipient"]) if rows else job.recipient
        return Digest(job.tenant, address, _held(found, numbers, address), list(numbers))

    async def set_reported(self, scope: Scope, digest: Digest) -> None:
        """Mark all messages of the digest as reported."""
        require_tenant(scope, digest.tenant)
        async with self._database.connection() as connection:
            await connection.execute(_SET_REPORTED, digest.tenant, fold(digest.recipient), list(digest.uids))

    async def find(self, scope: Scope, link: DigestLink) -> HeldForRecipient | None:
        """Return the message of a link, if the link is still valid."""
        async with self._database.connection() as connection:
            return await _find(connection, scope, link)

    async def release(self, scope: Scope, link: DigestLink, actor: Actor) -> HeldForRecipient | None:
        """Request the release to the recipient of a link, once; return the state before."""
        async with self._database.connection() as connection, connection.transaction():
            found = await _find(connection, scope, link, lock=True)
            if found is None:
                return None
            if found.state is not State.HELD:
                await confirm_earlier(connection)
                return found
            name = BY_RECIPIENT + found.recipient
            message = found.message
            if (await connection.execute(_REQUEST, message.uid, fold(found.recipient), name)).endswith(" 0"):
                raise NotReleasable("The message is not held for this recipient any more.")
            event = HeldAuditEvent(
                "release", message.uid, message.subject, message.tenant, {"recipients": [found.recipient]}
            )
            await record_audit_event(connection, Actor(name, actor.address, actor.request_id), event)
            return found


async def _find(
    connection: Connection, scope: Scope, link: DigestLink, *, lock: bool = False
) -> HeldForRecipient | None:
    row = await connection.fetchrow(_LINKED + ("FOR UPDATE" if lock else ""), scope.uids(), link.message)
    recipient = None if row is None else await connection.fetchrow(_RECIPIENT, link.message, link.number)
    if row is None or recipient is None:
        return None
    message, state = message_of(row), State(str(recipient["state"]))
    if state is State.DELETED or not message.is_open_to_recipients:
        return None
    return HeldForRecipient(message, link.number, str(recipient["recipient"]), state)


def _held(rows: Sequence[Row], numbers: dict[UUID, int], address: str) -> list[HeldForRecipient]:
    return [
        HeldForRecipient(message, numbers[message.uid], address, State.HELD)
        for message in (message_of(row) for row in rows)
    ]
