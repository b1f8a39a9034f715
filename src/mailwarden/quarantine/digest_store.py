"""Digests in PostgreSQL: who has one coming, taken on by one guard a day; what was told; what a link leads to."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import cast
from uuid import UUID

from mailwarden.database.pool import Connection, Database, Row
from mailwarden.errors import NotReleasable
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope
from mailwarden.quarantine.digest import FIRST, Digest, Turn, Waiting
from mailwarden.quarantine.digest_link import Link
from mailwarden.quarantine.held import BY_RECIPIENT, State
from mailwarden.quarantine.rows import MESSAGE, MINE, Deed, fold, message_of, record, require, uids_of

MAX_TOLD = 10_000  # messages that one digest may speak of; what is beyond is told the day after

_OURS = "($1::uuid[] IS NULL OR quarantine_digests.tenant = ANY ($1))"
_FORGET = f"DELETE FROM quarantine_digests WHERE {_OURS} AND (tried IS NULL OR tried < $2)"  # noqa: S608 -- a constant
_PREPARE = f"""
INSERT INTO quarantine_digests (tenant, recipient)
SELECT DISTINCT quarantine.tenant, folded FROM quarantine_recipients
JOIN quarantine ON quarantine.uid = message JOIN tenants ON tenants.uid = quarantine.tenant
WHERE {MINE} AND quarantine_digest AND state = 'held' AND told_at IS NULL AND received < $2 AND expires > now()
ON CONFLICT DO NOTHING
"""  # noqa: S608 -- put together from the constants above
_LOCK = "SELECT pg_advisory_xact_lock($1)"
_PREPARING = 0x6D77_7164  # the lock of whoever looks for what is due
_TAKE = f"""
WITH next AS (
    SELECT tenant, recipient FROM quarantine_digests JOIN tenants ON tenants.uid = tenant
    WHERE {_OURS} AND quarantine_digest AND (tried IS NULL OR tried < $2) AND (tenant, recipient) > ($3::uuid, $4)
    ORDER BY tenant, recipient LIMIT 1 FOR UPDATE OF quarantine_digests SKIP LOCKED
)
UPDATE quarantine_digests AS those SET tried = $2 FROM next
WHERE those.tenant = next.tenant AND those.recipient = next.recipient RETURNING those.tenant, those.recipient
"""  # noqa: S608 -- put together from the constants above
_GIVE_BACK = "UPDATE quarantine_digests SET tried = NULL WHERE tenant = $1 AND recipient = $2"
_UNTOLD = """
SELECT quarantine.uid, min(number) AS number, min(recipient) AS recipient
FROM quarantine_recipients JOIN quarantine ON quarantine.uid = message
WHERE quarantine.tenant = $1 AND folded = $2 AND state = 'held' AND told_at IS NULL AND received < $3
  AND expires > now()
GROUP BY quarantine.uid, received ORDER BY received DESC, quarantine.uid DESC LIMIT $4
"""
_THOSE = f"{MESSAGE} AND uid = ANY ($2::uuid[]) ORDER BY received DESC, uid DESC"
_TOLD = """
UPDATE quarantine_recipients SET told_at = now() FROM quarantine
WHERE uid = message AND tenant = $1 AND folded = $2 AND message = ANY ($3::uuid[])
"""
# A link holds for as long as the tenant wants digests: who switches them off ends the links as well.
_LED_TO = f"""
{MESSAGE} AND uid = $2 AND expires > now()
AND EXISTS (SELECT FROM tenants WHERE tenants.uid = quarantine.tenant AND quarantine_digest)
"""
_RECIPIENT = "SELECT recipient, state FROM quarantine_recipients WHERE message = $1 AND number = $2"
_ASK = """
UPDATE quarantine_recipients SET state = 'releasing', failure = '', changed_by = $3, changed_at = now()
WHERE message = $1 AND folded = $2 AND state = 'held'
"""


class DigestStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def prepare(self, scope: Scope, day: date, until: datetime) -> None:
        """Note who has a digest of this day coming: those who have not been told of what was held until then."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.fetchval(_LOCK, _PREPARING)
            await connection.execute(_FORGET, uids_of(scope), day)
            await connection.execute(_PREPARE, uids_of(scope), until)

    async def take(self, scope: Scope, day: date, after: Turn = FIRST) -> Turn | None:
        """Take on the next digest of the day, behind the one before: those who are done are not looked at again.

        Nobody else has it, and nobody tries it again before the next day.
        """
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_TAKE, uids_of(scope), day, after.tenant, after.recipient)
        return None if row is None else Turn(cast("UUID", row["tenant"]), str(row["recipient"]))

    async def give_back(self, scope: Scope, turn: Turn) -> None:
        """Let a digest be taken on again on the same day: it was not tried."""
        require(scope, turn.tenant)
        async with self._database.connection() as connection:
            await connection.execute(_GIVE_BACK, turn.tenant, turn.recipient)

    async def collect(self, scope: Scope, turn: Turn, until: datetime, listed: int) -> Digest:
        """Return what the recipient has not been told of, so many with their details."""
        require(scope, turn.tenant)
        folded = fold(turn.recipient)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_UNTOLD, turn.tenant, folded, until, MAX_TOLD)
            numbers = {cast("UUID", row["uid"]): cast("int", row["number"]) for row in rows}
            first = list(numbers)[:listed]
            found = await connection.fetch(_THOSE, [turn.tenant], first)
        address = str(rows[0]["recipient"]) if rows else turn.recipient
        return Digest(turn.tenant, address, _waiting(found, numbers, address), list(numbers))

    async def note_told(self, scope: Scope, digest: Digest) -> None:
        """Note that the recipient has been told of all that the digest speaks of."""
        require(scope, digest.tenant)
        async with self._database.connection() as connection:
            await connection.execute(_TOLD, digest.tenant, fold(digest.recipient), list(digest.uids))

    async def find(self, scope: Scope, link: Link) -> Waiting | None:
        """Return what a link leads to, where that may still be had by it."""
        async with self._database.connection() as connection:
            return await _find(connection, scope, link)

    async def release(self, scope: Scope, link: Link, actor: Actor) -> Waiting | None:
        """Have a message released to the one recipient of a link, once; a guard does it. Return it as it was."""
        async with self._database.connection() as connection, connection.transaction():
            found = await _find(connection, scope, link, lock=True)
            if found is None or found.state is not State.HELD:
                return found
            name = BY_RECIPIENT + found.recipient
            message = found.message
            if (await connection.execute(_ASK, message.uid, fold(found.recipient), name)).endswith(" 0"):
                raise NotReleasable("No recipient waits for this message.")
            deed = Deed("release", message.uid, message.subject, message.tenant, {"recipients": [found.recipient]})
            await record(connection, Actor(name, actor.address, actor.request_id), deed)
            return found


async def _find(connection: Connection, scope: Scope, link: Link, *, lock: bool = False) -> Waiting | None:
    row = await connection.fetchrow(_LED_TO + ("FOR UPDATE" if lock else ""), uids_of(scope), link.message)
    who = None if row is None else await connection.fetchrow(_RECIPIENT, link.message, link.number)
    if row is None or who is None:
        return None
    message, state = message_of(row), State(str(who["state"]))
    if state is State.DELETED or not message.is_open_to_recipients:
        return None
    return Waiting(message, link.number, str(who["recipient"]), state)


def _waiting(rows: Sequence[Row], numbers: dict[UUID, int], address: str) -> list[Waiting]:
    return [
        Waiting(message, numbers[message.uid], address, State.HELD) for message in (message_of(row) for row in rows)
    ]
