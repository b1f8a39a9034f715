"""Which keys the contents of lessons are sealed with, in PostgreSQL, and the same contents under another seal."""

from collections.abc import Mapping, Sequence
from typing import cast
from uuid import UUID

from mailwarden.access.scope_value import uids_of
from mailwarden.crypto.keyring import ID
from mailwarden.database.pool import Database
from mailwarden.model.scope import Scope

BATCH = 100
_MINE = "($1::uuid[] IS NULL OR tenant = ANY ($1))"
_USES = f"""
SELECT substring(contents FROM 2 FOR $2) AS key, count(*) AS lessons FROM lessons
WHERE {_MINE} AND contents IS NOT NULL GROUP BY key
"""  # noqa: S608 -- a constant of ours
_OTHERS = f"""
SELECT uid, contents FROM lessons
WHERE {_MINE} AND contents IS NOT NULL AND substring(contents FROM 2 FOR $2) <> $3 AND ($4::uuid IS NULL OR uid > $4)
ORDER BY uid LIMIT $5
"""  # noqa: S608 -- a constant of ours
_REPLACE = f"UPDATE lessons SET contents = $4 WHERE {_MINE} AND uid = $2 AND contents = $3 RETURNING true"  # noqa: S608


class LessonSealStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def uses(self, scope: Scope) -> Mapping[bytes, int]:
        """Return for each key id how many lessons need it."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_USES, uids_of(scope), ID)
        return {cast("bytes", row["key"]): cast("int", row["lessons"]) for row in rows}

    async def sealed_otherwise(self, scope: Scope, current: bytes, after: UUID | None) -> Sequence[tuple[UUID, bytes]]:
        """Return lessons behind this one whose contents are sealed with another key than the current one."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_OTHERS, uids_of(scope), ID, current, after, BATCH)
        return [(cast("UUID", row["uid"]), cast("bytes", row["contents"])) for row in rows]

    async def replace(self, scope: Scope, uid: UUID, before: bytes, after: bytes) -> bool:
        """Keep the same contents under another seal; False where they are others by now, or gone."""
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(_REPLACE, uids_of(scope), uid, before, after))
