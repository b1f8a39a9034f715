"""Sealed messages in a table with `tenant`, `uid` and `contents`, for the rotation of their key."""

from collections.abc import Mapping, Sequence
from typing import Literal
from uuid import UUID

from mailwarden.crypto.keyring import ID
from mailwarden.database.pool import Database
from mailwarden.database.rows import read
from mailwarden.model.scope import Scope

BATCH = 100
Table = Literal["training_reports", "case_reports"]

_KEY_USAGE = """
SELECT substring(contents FROM 2 FOR $2) AS key, count(*) AS rows FROM {table}
WHERE ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND contents IS NOT NULL GROUP BY key
"""
_OTHER_KEYS = """
SELECT uid, contents FROM {table}
WHERE ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND contents IS NOT NULL AND substring(contents FROM 2 FOR $2) <> $3
  AND ($4::uuid IS NULL OR uid > $4)
ORDER BY uid LIMIT $5
"""
_REPLACE = """
UPDATE {table} SET contents = $4
WHERE ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND uid = $2 AND contents = $3 RETURNING true
"""


class SealedContents:
    def __init__(self, database: Database, table: Table) -> None:
        self._database = database
        self._key_usage, self._other_keys, self._replace = (
            statement.format(table=table) for statement in (_KEY_USAGE, _OTHER_KEYS, _REPLACE)
        )

    async def key_usage(self, scope: Scope) -> Mapping[bytes, int]:
        """Return how many messages each key id sealed."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._key_usage, scope.uids(), ID)
        return {read(row, "key", bytes): read(row, "rows", int) for row in rows}

    async def sealed_with_other_keys(
        self, scope: Scope, current: bytes, after: UUID | None
    ) -> Sequence[tuple[UUID, bytes]]:
        """Return the next messages, by uid, that another key than the current one sealed."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._other_keys, scope.uids(), ID, current, after, BATCH)
        return [(read(row, "uid", UUID), read(row, "contents", bytes)) for row in rows]

    async def replace(self, scope: Scope, uid: UUID, before: bytes, after: bytes) -> bool:
        """Replace a sealed message; return False if it changed or was deleted meanwhile."""
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(self._replace, scope.uids(), uid, before, after))
