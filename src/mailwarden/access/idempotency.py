"""Results by Idempotency-Key: a repeated call within a day gets the first result, another body is rejected."""

import hashlib
import re
from typing import cast

from mailwarden.database.pool import Connection, Database
from mailwarden.errors import IdempotencyConflict, SchemaViolation, StorageUnavailable

WINDOW = "24 hours"
WAIT = 2.0
PURGE_EVERY = 64
PURGE_BATCH = 256
_ATTEMPTS = 3
_KEY = re.compile(r"^[\x21-\x7e]{1,255}\Z")

# Only the database's clock counts: the clocks of several abby hosts differ.
_FIND = f"""
SELECT digest, answer FROM idempotency
WHERE token_name = $1 AND key_hash = $2 AND created > now() - interval '{WINDOW}'
"""  # noqa: S608 -- the window is a constant of this file
_REMEMBER = f"""
INSERT INTO idempotency AS kept (token_name, key_hash, digest, answer) VALUES ($1, $2, $3, $4)
ON CONFLICT (token_name, key_hash) DO UPDATE
    SET digest = EXCLUDED.digest, answer = EXCLUDED.answer, created = now()
    WHERE kept.created <= now() - interval '{WINDOW}'
RETURNING true
"""  # noqa: S608
_PURGE = f"""
WITH expired AS (
    SELECT token_name, key_hash FROM idempotency WHERE created <= now() - interval '{WINDOW}'
    ORDER BY created LIMIT $1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM idempotency USING expired
    WHERE idempotency.token_name = expired.token_name AND idempotency.key_hash = expired.key_hash
    RETURNING 1
)
SELECT count(*) FROM gone
"""  # noqa: S608


def check_key(key: str) -> None:
    """Reject a key that is not 1 to 255 visible ASCII characters."""
    if not _KEY.match(key):
        problem = "Idempotency-Key must be 1 to 255 visible ASCII characters"
        raise SchemaViolation(f"{problem}.", details=[{"header": "Idempotency-Key", "problem": problem}])


class IdempotencyStore:
    """The first result of each key; a row belongs to the token that sent the key, not to a tenant."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._calls = 0

    async def find(self, token_name: str, key: str, digest: bytes) -> bytes | None:
        """Return the first result of the key, or None; reject a key that was used with another body."""
        check_key(key)
        async with self._database.connection(WAIT) as connection:
            return await _find(connection, token_name, key, digest)

    async def remember(self, token_name: str, key: str, digest: bytes, answer: bytes) -> bytes:
        """Store the result unless one exists; return the stored result."""
        check_key(key)
        async with self._database.connection(WAIT) as connection:
            await self._purge_at_times(connection)
            # A row may expire or be purged between the two statements: then the key is free again.
            for _ in range(_ATTEMPTS):
                if await connection.fetchval(_REMEMBER, token_name, _hash(key), digest, answer):
                    return answer
                first = await _find(connection, token_name, key, digest)
                if first is not None:
                    return first
        raise StorageUnavailable("The idempotency key could not be kept.", retry_after=1)

    async def purge(self, limit: int = PURGE_BATCH) -> int:
        """Delete at most `limit` expired results; return their number."""
        async with self._database.connection(WAIT) as connection:
            return cast("int", await connection.fetchval(_PURGE, limit))

    async def _purge_at_times(self, connection: Connection) -> None:
        """Delete more rows than were added since the last purge, so that the table holds one window."""
        self._calls += 1
        if self._calls % PURGE_EVERY == 0:
            await connection.fetchval(_PURGE, PURGE_BATCH)


async def _find(connection: Connection, token_name: str, key: str, digest: bytes) -> bytes | None:
    row = await connection.fetchrow(_FIND, token_name, _hash(key))
    if row is None:
        return None
    if row["digest"] != digest:
        raise IdempotencyConflict("This Idempotency-Key was used with another body within the last 24 hours.")
    return cast("bytes", row["answer"])


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("ascii")).digest()
