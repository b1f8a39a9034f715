"""Lessons in PostgreSQL: kept, taken back, and handed out to the guard that has them learned."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import cast
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.access.audit import record_deed
from mailwarden.access.scope_value import uids_of
from mailwarden.database.pool import Connection, Database, Row
from mailwarden.errors import LearningFull, LessonNotFound, TenantForbidden
from mailwarden.learning.lesson import DueLesson, Kind, Lesson, NewLesson, Standing, State
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope

MAX_LESSONS = 20_000  # of one tenant
MAX_PAGE = 500
_TURN = 0x6D77_6C65  # the lock that only one guard at a time can hold: lessons are learned one after the other

_STATE = """
CASE WHEN contents IS NULL THEN 'not-kept' WHEN refused THEN 'refused'
     WHEN learned_in >= generation THEN 'learned' ELSE 'waiting' END AS state
"""
_COLUMNS = f"uid, lessons.tenant, kind, size, ggrid, subject, reported_by, reported_at, {_STATE}"
_FROM = "FROM lessons JOIN learning ON learning.tenant = lessons.tenant"
_MINE = "($1::uuid[] IS NULL OR lessons.tenant = ANY ($1))"
_BEGIN = "INSERT INTO learning (tenant) VALUES ($1) ON CONFLICT DO NOTHING"
_LOCK = "SELECT generation FROM learning WHERE tenant = $1 FOR UPDATE"
_COUNT = "SELECT count(*) FROM lessons WHERE tenant = $1"
_FIND_SAME = "SELECT uid, kind, remembered, contents IS NOT NULL AS kept FROM lessons WHERE tenant = $1 AND digest = $2"
_DROP = "DELETE FROM lessons WHERE uid = $1"
_ADD = """
INSERT INTO lessons (uid, tenant, kind, digest, size, contents, ggrid, subject, reported_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_AMEND = """
UPDATE lessons SET kind = $2, ggrid = $3, subject = $4, reported_by = $5, remembered = NULL, reported_at = now()
WHERE uid = $1
"""
_REMEMBER = """
UPDATE lessons SET remembered = $3 WHERE ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND uid = $2
"""
_ONE = f"SELECT {_COLUMNS} {_FROM} WHERE {_MINE} AND uid = $2"
_PAGE = f"""
SELECT {_COLUMNS} {_FROM} WHERE {_MINE} AND lessons.tenant = $2 AND ($3::timestamptz IS NULL OR reported_at < $3)
ORDER BY reported_at DESC, uid DESC LIMIT $4
"""
_OF_MESSAGE = f"SELECT {_COLUMNS} {_FROM} WHERE {_MINE} AND ggrid = $2 ORDER BY reported_at DESC LIMIT {MAX_PAGE}"
# One that waits may be on its way to the engine, or be learned although the answer was lost.
_TAKE_BACK = f"""
DELETE FROM lessons WHERE {_MINE} AND uid = $2
RETURNING tenant, kind, subject, contents IS NOT NULL AND NOT refused AS learned, remembered
"""  # noqa: S608 -- put together from the constants above
_REBUILD = "UPDATE learning SET wanted = wanted + 1 WHERE tenant = $1"
_TRY_AGAIN = "UPDATE lessons SET refused = false WHERE tenant = $1 AND refused"
_CLEAR = "DELETE FROM lessons WHERE tenant = $1"
_STANDINGS = """
SELECT learning.tenant, generation, wanted,
       count(uid) FILTER (WHERE taken AND kind IN ('phishing', 'spam')) AS threats,
       count(uid) FILTER (WHERE taken AND kind IN ('fine', 'released')) AS fine,
       count(uid) FILTER (WHERE contents IS NOT NULL AND NOT refused AND learned_in < wanted) AS waiting
FROM learning LEFT JOIN LATERAL (
    SELECT uid, kind, contents, refused, learned_in, learned_in >= generation AND NOT refused AS taken
    FROM lessons WHERE lessons.tenant = learning.tenant
) AS lesson ON true
WHERE $1::uuid[] IS NULL OR learning.tenant = ANY ($1)
GROUP BY learning.tenant, generation, wanted
"""
# Tenants take turns, so that none waits for all that another has to learn.
_DUE = f"""
WITH due AS (
    SELECT uid, wanted, row_number() OVER (PARTITION BY lessons.tenant ORDER BY reported_at, uid) AS turn {_FROM}
    WHERE {_MINE} AND contents IS NOT NULL AND NOT refused AND learned_in < wanted
)
SELECT uid, tenant, kind, contents, wanted FROM due JOIN lessons USING (uid)
ORDER BY turn, reported_at, uid LIMIT $2
"""  # noqa: S608 -- put together from the constants above
_LEARNED = "UPDATE lessons SET learned_in = $2, refused = $3 WHERE uid = $1"
_SWITCH = """
WITH whole AS (
    SELECT tenant, generation FROM learning
    WHERE wanted > generation AND ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND NOT EXISTS (
        SELECT FROM lessons WHERE lessons.tenant = learning.tenant
        AND contents IS NOT NULL AND NOT refused AND learned_in < wanted
    )
    FOR UPDATE
)
UPDATE learning SET generation = wanted FROM whole WHERE learning.tenant = whole.tenant
RETURNING learning.tenant, whole.generation AS former, learning.generation
"""
_EXPIRE = "DELETE FROM lessons WHERE reported_at < $1 AND ($2::uuid[] IS NULL OR tenant = ANY ($2))"

# What was changed in another memory on the way, by name; the store keeps it and asks nothing of it.
Remembered = Mapping[str, object]


class Replaced(Struct, frozen=True):
    """What was said of a message before."""

    kind: Kind
    remembered: Remembered | None


class LessonStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, scope: Scope, lesson: NewLesson, actor: Actor) -> tuple[Lesson, Replaced | None]:
        """Keep a lesson; who says something else of the same message replaces what was said.

        A message that was given before need not come again. Returns the lesson, and what it replaced.
        """
        _require(scope, lesson.tenant)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_BEGIN, lesson.tenant)
            await connection.fetchval(_LOCK, lesson.tenant)
            before = await connection.fetchrow(_FIND_SAME, lesson.tenant, lesson.digest)
            if before is not None:
                if Kind(str(before["kind"])).is_threat != lesson.kind.is_threat:
                    # It may be learned already, and is not unlearned: the next generation is made without it.
                    await connection.execute(_REBUILD, lesson.tenant)
            elif int(cast("int", await connection.fetchval(_COUNT, lesson.tenant))) >= MAX_LESSONS:
                raise LearningFull(
                    f"This tenant has {MAX_LESSONS:,} lessons, as many as are kept. "
                    "Take some back, or reset what was learned, before adding more."
                )
            uid = await _put(connection, lesson, actor, before)
            details = {"kind": lesson.kind, "uid": str(uid), "ggrid": lesson.ggrid and str(lesson.ggrid)}
            await record_deed(connection, actor, "learning.report", lesson.subject[:200], details, tenant=lesson.tenant)
            row = await connection.fetchrow(_ONE, [lesson.tenant], uid)
        if row is None:
            raise LessonNotFound("The lesson went while it was kept.")
        return _lesson(row), None if before is None else Replaced(Kind(str(before["kind"])), _remembered(before))

    async def remember(self, scope: Scope, uid: UUID, changed: Remembered) -> None:
        """Keep with a lesson what was changed elsewhere on its account."""
        async with self._database.connection() as connection:
            await connection.execute(_REMEMBER, uids_of(scope), uid, msgspec.json.encode(changed).decode())

    async def take_back(self, scope: Scope, uid: UUID, actor: Actor) -> tuple[UUID, Remembered | None]:
        """Forget a lesson; return its tenant and what was remembered with it."""
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetchrow(_TAKE_BACK, uids_of(scope), uid)
            if row is None:
                raise LessonNotFound("There is no such report.")
            tenant = cast("UUID", row["tenant"])
            if row["learned"]:  # or may be
                await connection.execute(_REBUILD, tenant)
            details = {"kind": row["kind"], "uid": str(uid)}
            await record_deed(connection, actor, "learning.withdraw", str(row["subject"])[:200], details, tenant=tenant)
        return tenant, _remembered(row)

    async def reset(self, scope: Scope, tenant: UUID, actor: Actor) -> int:
        """Forget all lessons of a tenant; return how many there were."""
        _require(scope, tenant)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_BEGIN, tenant)
            gone = int((await connection.execute(_CLEAR, tenant)).rpartition(" ")[2])
            await connection.execute(_REBUILD, tenant)
            await record_deed(connection, actor, "learning.reset", str(tenant), {"lessons": gone}, tenant=tenant)
        return gone

    async def rebuild(self, scope: Scope, tenant: UUID, actor: Actor) -> None:
        """Want all lessons of a tenant learned anew, those too that were refused: a guard may have had another key."""
        _require(scope, tenant)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_BEGIN, tenant)
            await connection.execute(_REBUILD, tenant)
            await connection.execute(_TRY_AGAIN, tenant)
            await record_deed(connection, actor, "learning.rebuild", str(tenant), {}, tenant=tenant)

    async def page(
        self, scope: Scope, tenant: UUID, before: datetime | None = None, limit: int = 100
    ) -> Sequence[Lesson]:
        """Return lessons of a tenant, the newest first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_PAGE, uids_of(scope), tenant, before, min(limit, MAX_PAGE))
        return [_lesson(row) for row in rows]

    async def of_message(self, scope: Scope, ggrid: UUID) -> Sequence[Lesson]:
        """Return what was said of one message."""
        async with self._database.connection() as connection:
            return [_lesson(row) for row in await connection.fetch(_OF_MESSAGE, uids_of(scope), ggrid)]

    async def standings(self, scope: Scope) -> Sequence[Standing]:
        """Return the standing of every tenant that has learned anything."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_STANDINGS, uids_of(scope))
        return [msgspec.convert(dict(cast("Mapping[str, object]", row)), Standing) for row in rows]

    async def standing(self, scope: Scope, tenant: UUID) -> Standing:
        _require(scope, tenant)
        found = await self.standings(Scope.of(tenant))
        return found[0] if found else Standing(tenant)

    @asynccontextmanager
    async def turn(self, scope: Scope) -> AsyncIterator[bool]:
        """Hold the turn to teach, of which there is one in a deployment; False where another guard has it."""
        async with self._database.connection() as connection, connection.transaction():
            yield bool(await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _TURN))

    async def due(self, scope: Scope, limit: int) -> Sequence[DueLesson]:
        """Return lessons that are to be learned, of each tenant the oldest first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_DUE, uids_of(scope), limit)
        return [_due(row) for row in rows]

    async def note(self, scope: Scope, lesson: DueLesson, *, refused: bool) -> None:
        """Note that a lesson was learned in its generation, or that there is nothing in it to learn."""
        _require(scope, lesson.tenant)
        async with self._database.connection() as connection:
            await connection.execute(_LEARNED, lesson.uid, lesson.generation, refused)

    async def switch(self, scope: Scope) -> Sequence[tuple[UUID, range]]:
        """Take the generations that are wholly learned; return the tenants, and which of theirs are done with."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_SWITCH, uids_of(scope))
        return [
            (cast("UUID", row["tenant"]), range(cast("int", row["former"]), cast("int", row["generation"])))
            for row in rows
        ]

    async def forget(self, scope: Scope, before: datetime) -> int:
        """Forget lessons older than that; what was learned from them fades at the next rebuilding."""
        async with self._database.connection() as connection:
            return int((await connection.execute(_EXPIRE, before, uids_of(scope))).rpartition(" ")[2])


async def _put(connection: Connection, lesson: NewLesson, actor: Actor, before: Row | None) -> UUID:
    """Write a lesson in the place of the one before, if there is one; return under which uid it is kept."""
    about = (lesson.ggrid, lesson.subject, actor.name)
    if before is not None and before["kept"] and lesson.contents is None:  # sealed for that uid
        await connection.execute(_AMEND, before["uid"], lesson.kind, *about)
        return cast("UUID", before["uid"])
    if before is not None:
        await connection.execute(_DROP, before["uid"])
    given = (lesson.digest, lesson.size, lesson.contents)
    await connection.execute(_ADD, lesson.uid, lesson.tenant, lesson.kind, *given, *about)
    return lesson.uid


def _require(scope: Scope, tenant: UUID) -> None:
    if not scope.allows(tenant):
        raise TenantForbidden("This tenant is not yours.")


def _lesson(row: Row) -> Lesson:
    return Lesson(
        uid=cast("UUID", row["uid"]),
        tenant=cast("UUID", row["tenant"]),
        kind=Kind(str(row["kind"])),
        state=State(str(row["state"])),
        size=cast("int", row["size"]),
        ggrid=cast("UUID | None", row["ggrid"]),
        subject=str(row["subject"]),
        reported_by=str(row["reported_by"]),
        reported_at=cast("datetime", row["reported_at"]),
    )


def _due(row: Row) -> DueLesson:
    uid, tenant, wanted = cast("UUID", row["uid"]), cast("UUID", row["tenant"]), cast("int", row["wanted"])
    return DueLesson(uid, tenant, Kind(str(row["kind"])), cast("bytes", row["contents"]), wanted)


def _remembered(row: Row) -> Remembered | None:
    text = row["remembered"]
    return None if text is None else msgspec.json.decode(str(text), type=dict[str, object])
