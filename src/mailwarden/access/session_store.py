"""The sessions of the console in PostgreSQL.

Security: a row has the digest of the cookie value, never the value.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import cast
from uuid import UUID

from msgspec import Struct

from mailwarden.access.users import USER_COLUMNS, User, user_of
from mailwarden.database.pool import Database, Row, confirm_earlier

MAX_VISITS = 200  # per client address; the oldest are deleted
MAX_SESSIONS = 100
_PURGE_EVERY = 64
_COLUMNS = """
sessions.digest, session_id, method, csrf, notes, host(address) AS address, agent, sessions.created, last_seen, expires
"""
_INSERT = """
INSERT INTO sessions (digest, user_id, method, csrf, notes, address, agent, expires)
VALUES ($1, $2, $3, $4, $5, $6::text::inet, $7, now() + make_interval(secs => $8))
"""
# A disabled user has no valid session.
_FIND = f"""
SELECT {_COLUMNS}, {USER_COLUMNS}, sessions.user_id FROM sessions LEFT JOIN users ON users.uid = sessions.user_id
WHERE digest = $1 AND expires > now() AND (sessions.user_id IS NULL
    OR (users.disabled IS NULL AND last_seen > now() - make_interval(secs => $2)))
"""  # noqa: S608 -- constants of the stores
_LIST = f"""
SELECT {_COLUMNS} FROM sessions
WHERE user_id = $1 AND expires > now() AND last_seen > now() - make_interval(secs => $2)
ORDER BY last_seen DESC LIMIT {MAX_SESSIONS}
"""  # noqa: S608
_TOUCH = "UPDATE sessions SET last_seen = now() WHERE digest = $1"
# No address: `_CROWD` must not delete it before the visit ends.
_SPEND = """
INSERT INTO sessions (digest, csrf, expires) VALUES ($1, '', $2) ON CONFLICT (digest) DO NOTHING RETURNING true
"""
_CROWD = """
DELETE FROM sessions WHERE digest IN (
    SELECT digest FROM sessions WHERE user_id IS NULL AND address = $1::text::inet ORDER BY created DESC OFFSET $2
)
"""
_PURGE = """
DELETE FROM sessions WHERE digest IN (
    SELECT digest FROM sessions WHERE expires <= now() LIMIT 256 FOR UPDATE SKIP LOCKED
)
"""


class SessionRow(Struct, frozen=True):
    """A stored session; without a user it is a visit before login."""

    digest: bytes
    session_id: UUID
    method: str
    csrf: str
    notes: bytes
    address: str | None
    agent: str
    created: datetime
    last_seen: datetime
    expires: datetime
    user: User | None = None


class SessionStore:
    """All SQL about sessions; a row belongs to the holder of its cookie."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._calls = 0

    async def create(
        self,
        digest: bytes,
        user_id: UUID | None,
        *,
        method: str,
        csrf: str,
        notes: bytes,
        address: str | None,
        agent: str,
        seconds: float,
        instead_of: bytes | None = None,
    ) -> None:
        """Store a new session, and delete the one it replaces in the same transaction."""
        async with self._database.connection() as connection, connection.transaction():
            if instead_of is not None:
                await connection.execute("DELETE FROM sessions WHERE digest = $1", instead_of)
            await connection.execute(_INSERT, digest, user_id, method, csrf, notes, address, agent, seconds)
            if user_id is None:
                await connection.execute(_CROWD, address, MAX_VISITS)
            self._calls += 1
            if self._calls % _PURGE_EVERY == 0:
                await connection.execute(_PURGE)

    async def spend(self, digest: bytes, expires: datetime) -> bool:
        """Record the use of a visit's cookie; return False if it was used before."""
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(_SPEND, digest, expires))

    async def find(self, digest: bytes, idle: float) -> SessionRow | None:
        """Return the session with the current user, unless it has ended."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_FIND, digest, idle)
        if row is None:
            return None
        return _session(row, None if row["user_id"] is None else user_of(row))

    async def touch(self, digest: bytes) -> None:
        """Record the use of the session."""
        async with self._database.connection() as connection:
            await connection.execute(_TOUCH, digest)

    async def write_notes(self, digest: bytes, notes: bytes, expected: bytes) -> bool:
        """Replace the notes if they are unchanged since they were read; return whether they were."""
        async with self._database.connection() as connection:
            query = "UPDATE sessions SET notes = $2 WHERE digest = $1 AND notes = $3 RETURNING true"
            return bool(await connection.fetchval(query, digest, notes, expected))

    async def force_notes(self, digest: bytes, notes: bytes) -> None:
        """Replace the notes unconditionally."""
        async with self._database.connection() as connection:
            await connection.execute("UPDATE sessions SET notes = $2 WHERE digest = $1", digest, notes)

    async def list(self, user_id: UUID, idle: float) -> Sequence[SessionRow]:
        """Return the sessions of a user, last used first."""
        async with self._database.connection() as connection:
            return [_session(row, None) for row in await connection.fetch(_LIST, user_id, idle)]

    async def end(self, digest: bytes) -> None:
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute("DELETE FROM sessions WHERE digest = $1", digest)
            await confirm_earlier(connection)

    async def end_one(self, user_id: UUID, session_id: UUID) -> bool:
        """End one session of a user; return whether it existed."""
        async with self._database.connection() as connection, connection.transaction():
            await confirm_earlier(connection)
            return bool(
                await connection.fetchval(
                    "DELETE FROM sessions WHERE user_id = $1 AND session_id = $2 RETURNING true", user_id, session_id
                )
            )

    async def end_all(self, user_id: UUID, but: bytes | None = None) -> None:
        """End all sessions of a user, or all but one."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(
                "DELETE FROM sessions WHERE user_id = $1 AND digest IS DISTINCT FROM $2", user_id, but
            )
            await confirm_earlier(connection)


def _session(row: Row, user: User | None) -> SessionRow:
    return SessionRow(
        digest=cast("bytes", row["digest"]),
        session_id=cast("UUID", row["session_id"]),
        method=str(row["method"]),
        csrf=str(row["csrf"]),
        notes=cast("bytes", row["notes"]),
        address=cast("str | None", row["address"]),
        agent=str(row["agent"]),
        created=cast("datetime", row["created"]),
        last_seen=cast("datetime", row["last_seen"]),
        expires=cast("datetime", row["expires"]),
        user=user,
    )
