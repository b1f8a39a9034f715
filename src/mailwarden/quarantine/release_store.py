"""Releases that were asked for, in PostgreSQL: taken on by one guard at a time, and noted as done or as failed."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast
from uuid import UUID

from mailwarden.database.pool import Database
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope
from mailwarden.quarantine.held import HeldMessage, Release, State
from mailwarden.quarantine.rows import MESSAGE, MINE, Deed, message_of, plain, record, require, uids_of

MAX_FAILURE = 500

# What a guard took on and never noted, because it died, is taken on again when its time is over.
_CLAIM = f"""
WITH next AS (
    SELECT message, changed_by FROM quarantine_recipients JOIN quarantine ON uid = message
    WHERE {MINE} AND vault = $2 AND state = 'releasing' AND (claimed_until IS NULL OR claimed_until < now())
    ORDER BY changed_at LIMIT 1 FOR UPDATE OF quarantine SKIP LOCKED
)
UPDATE quarantine_recipients AS those SET claimed_until = now() + make_interval(secs => $3)
FROM next WHERE those.message = next.message AND those.changed_by = next.changed_by AND state = 'releasing'
  AND (claimed_until IS NULL OR claimed_until < now())
RETURNING those.message, those.recipient, those.changed_by
"""  # noqa: S608 -- put together from the constants above
_ONE = f"{MESSAGE} AND uid = $2"
_RELEASED = """
UPDATE quarantine_recipients SET state = 'released', failure = '', changed_at = now(), claimed_until = NULL
WHERE message = $1 AND state = 'releasing' AND recipient = ANY ($2::text[])
"""
_FAILED = """
UPDATE quarantine_recipients SET state = 'held', failure = each.failure, changed_at = now(), claimed_until = NULL
FROM unnest($2::text[], $3::text[]) AS each (name, failure)
WHERE message = $1 AND state = 'releasing' AND recipient = each.name
"""
_MISSING = f"UPDATE quarantine SET missing = $3 WHERE {MINE} AND uid = $2"  # noqa: S608 -- a constant of ours
# A row keeps its pass from being used until it expires: for a while by the guard that delivers now, then for good.
_TAKE = """
INSERT INTO quarantine_passes AS known (pass, expires) VALUES ($1, now() + make_interval(secs => $2))
ON CONFLICT (pass) DO UPDATE SET expires = excluded.expires WHERE known.expires < now()
RETURNING expires
"""
_IS_CLAIMED = "SELECT expires <= now() + make_interval(secs => $2) FROM quarantine_passes WHERE pass = $1"
_GIVE_BACK = "DELETE FROM quarantine_passes WHERE pass = $1 AND expires = $2"
_SPEND = """
INSERT INTO quarantine_passes (pass, expires) VALUES ($1, $2)
ON CONFLICT (pass) DO UPDATE SET expires = excluded.expires
"""


class ReleaseStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, scope: Scope, vault: UUID, seconds: float) -> Release | None:
        """Take on the release that waits longest of those whose bytes are in the vault; it is ours for so long."""
        async with self._database.connection() as connection, connection.transaction():
            rows = await connection.fetch(_CLAIM, uids_of(scope), vault, seconds)
            if not rows:
                return None
            found = await connection.fetchrow(_ONE, uids_of(scope), rows[0]["message"])
        if found is None:
            return None
        names = {str(row["recipient"]) for row in rows}
        message = message_of(found)
        ordered = [each for each in message.in_state(State.RELEASING) if each in names]
        return Release(message, ordered, str(rows[0]["changed_by"]))

    async def note(self, scope: Scope, release: Release, failures: Mapping[str, str]) -> Sequence[str]:
        """Note what came of a release: who failed is held as before, and it is told why. Return who has it."""
        message, actor = release.message, Actor(release.asked_by)
        require(scope, message.tenant)
        taken = [each for each in release.recipients if each not in failures]
        sentences = {name: plain(failure)[:MAX_FAILURE] for name, failure in failures.items()}
        async with self._database.connection() as connection, connection.transaction():
            if taken:
                await connection.execute(_RELEASED, message.uid, taken)
                deed = Deed("released", message.uid, message.subject, message.tenant, {"recipients": taken})
                await record(connection, actor, deed)
            if sentences:
                await connection.execute(_FAILED, message.uid, list(sentences), list(sentences.values()))
                deed = Deed("fail", message.uid, message.subject, message.tenant, {"failures": sentences})
                await record(connection, actor, deed)
        return taken

    async def note_missing(self, scope: Scope, message: HeldMessage, *, missing: bool) -> None:
        """Note that the bytes of a message are not where they should be, or that they are there again."""
        async with self._database.connection() as connection:
            await connection.execute(_MISSING, uids_of(scope), message.uid, missing)

    async def claim_pass(self, scope: Scope, pass_uid: UUID, seconds: float) -> datetime | None:
        """Take a pass for one delivery; of all guards that ask, one gets it. Return until when, or None.

        A pass is no tenant's. A guard that dies with it leaves it claimed until then, and a retry gets it.
        """
        async with self._database.connection() as connection:
            return cast("datetime | None", await connection.fetchval(_TAKE, pass_uid, seconds))

    async def is_claimed(self, scope: Scope, pass_uid: UUID, seconds: float) -> bool:
        """Tell whether a pass that could not be taken is in use, and not spent."""
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(_IS_CLAIMED, pass_uid, seconds))

    async def give_back_pass(self, scope: Scope, pass_uid: UUID, claimed_until: datetime) -> None:
        """Let a pass be used again, as nothing was delivered by it."""
        async with self._database.connection() as connection:
            await connection.execute(_GIVE_BACK, pass_uid, claimed_until)

    async def spend_pass(self, scope: Scope, pass_uid: UUID, until: datetime) -> None:
        """Keep a pass from being used again."""
        async with self._database.connection() as connection:
            await connection.execute(_SPEND, pass_uid, until)
