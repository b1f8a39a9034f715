"""Reports in PostgreSQL: stored, withdrawn, handed to the guard that trains the engine, and sealed with new keys."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import cast
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.access.audit import record_event
from mailwarden.database.clock import read_now
from mailwarden.database.pool import Connection, Database, Row
from mailwarden.database.rows import read, read_optional
from mailwarden.database.visible import in_scope
from mailwarden.errors import ReportNotFound, TenantForbidden, TrainingFull
from mailwarden.events.catalogue import MessageReported, short
from mailwarden.events.outbox import new_event, record
from mailwarden.model.scope import Actor, Scope
from mailwarden.user_reports.reports import Kind, NewReport, PendingReport, TrainingState, TrainingStatus, UserReport

MAX_REPORTS = 20_000  # of one tenant
MAX_PAGE = 500
_TRAINING_LOCK = 0x6D77_6C65  # only one guard trains at a time

_STATE = """
CASE WHEN contents IS NULL THEN 'not-stored' WHEN rejected THEN 'rejected'
     WHEN trained_in >= generation THEN 'trained' ELSE 'waiting' END AS state
"""
_COLUMNS = f"uid, training_reports.tenant, kind, size, ggrid, subject, reported_by, reported_at, {_STATE}"
_FROM = "FROM training_reports JOIN training ON training.tenant = training_reports.tenant"
_MINE = in_scope("training_reports.tenant")
_ENSURE_TENANT = "INSERT INTO training (tenant) VALUES ($1) ON CONFLICT DO NOTHING"
_LOCK = "SELECT generation FROM training WHERE tenant = $1 FOR UPDATE"
_COUNT = "SELECT count(*) FROM training_reports WHERE tenant = $1"
_FIND_SAME = (
    "SELECT uid, kind, remembered, contents IS NOT NULL AS kept FROM training_reports WHERE tenant = $1 AND digest = $2"
)
_DELETE = "DELETE FROM training_reports WHERE uid = $1"
_ADD = """
INSERT INTO training_reports (uid, tenant, kind, digest, size, contents, ggrid, subject, reported_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_UPDATE = """
UPDATE training_reports
SET kind = $2, ggrid = $3, subject = $4, reported_by = $5, remembered = NULL, reported_at = now()
WHERE uid = $1
"""
_SAVE_CHANGE = f"UPDATE training_reports SET remembered = $3 WHERE {_MINE} AND uid = $2"  # noqa: S608 -- from constants above
_ONE = f"SELECT {_COLUMNS} {_FROM} WHERE {_MINE} AND uid = $2"
_PAGE = f"""
SELECT {_COLUMNS} {_FROM} WHERE {_MINE} AND training_reports.tenant = $2 AND (
    $3::timestamptz IS NULL OR reported_at < $3 OR (reported_at = $3 AND uid < $5::uuid)
) ORDER BY reported_at DESC, uid DESC LIMIT $4
"""
_OF_MESSAGE = f"SELECT {_COLUMNS} {_FROM} WHERE {_MINE} AND ggrid = $2 ORDER BY reported_at DESC LIMIT {MAX_PAGE}"
# The engine may have learned a waiting report whose response was lost, so it counts as learned.
_WITHDRAW = f"""
DELETE FROM training_reports WHERE {_MINE} AND uid = $2
RETURNING tenant, kind, subject, contents IS NOT NULL AND NOT rejected AS trained, remembered
"""  # noqa: S608 -- from constants above
_REBUILD = "UPDATE training SET wanted = wanted + 1 WHERE tenant = $1"
_RETRY_REJECTED = "UPDATE training_reports SET rejected = false WHERE tenant = $1 AND rejected"
_DELETE_ALL = "DELETE FROM training_reports WHERE tenant = $1"
_STATUSES = f"""
SELECT training.tenant, generation, wanted,
       count(uid) FILTER (WHERE taken AND kind IN ('phishing', 'spam')) AS threats,
       count(uid) FILTER (WHERE taken AND kind IN ('good', 'released')) AS good,
       count(uid) FILTER (WHERE contents IS NOT NULL AND NOT rejected AND trained_in < wanted) AS waiting
FROM training LEFT JOIN LATERAL (
    SELECT uid, kind, contents, rejected, trained_in, trained_in >= generation AND NOT rejected AS taken
    FROM training_reports WHERE training_reports.tenant = training.tenant
) AS report ON true
WHERE {in_scope("training.tenant")}
GROUP BY training.tenant, generation, wanted
"""  # noqa: S608 -- from constants above
# Tenants alternate, so that no tenant waits for all reports of another.
_PENDING = f"""
WITH due AS (
    SELECT uid, wanted, row_number() OVER (PARTITION BY training_reports.tenant ORDER BY reported_at, uid) AS turn
    {_FROM}
    WHERE {_MINE} AND contents IS NOT NULL AND NOT rejected AND trained_in < wanted
)
SELECT uid, tenant, kind, contents, wanted FROM due JOIN training_reports USING (uid)
ORDER BY turn, reported_at, uid LIMIT $2
"""  # noqa: S608 -- from constants above
_TRAINED = "UPDATE training_reports SET trained_in = $2, rejected = $3 WHERE uid = $1"
_SWITCH = """
WITH whole AS (
    SELECT tenant, generation FROM training
    WHERE wanted > generation AND ($1::uuid[] IS NULL OR tenant = ANY ($1)) AND NOT EXISTS (
        SELECT FROM training_reports WHERE training_reports.tenant = training.tenant
        AND contents IS NOT NULL AND NOT rejected AND trained_in < wanted
    )
    FOR UPDATE
)
UPDATE training SET generation = wanted FROM whole WHERE training.tenant = whole.tenant
RETURNING training.tenant, whole.generation AS former, training.generation
"""
_DELETE_OLD = "DELETE FROM training_reports WHERE reported_at < $1 AND ($2::uuid[] IS NULL OR tenant = ANY ($2))"


# The change to sender history that a report caused; the store does not interpret it.
SenderChange = Mapping[str, object]


class ReplacedReport(Struct, frozen=True):
    """The earlier report about the same message."""

    kind: Kind
    change: SenderChange | None


class ReportStore:
    """Stores one report for each message of a tenant; the latest report wins."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, scope: Scope, report: NewReport, actor: Actor) -> tuple[UserReport, ReplacedReport | None]:
        """Store a report and return it with the report it replaced.

        A message that was stored with an earlier report need not come again.
        """
        _require(scope, report.tenant)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_ENSURE_TENANT, report.tenant)
            await connection.fetchval(_LOCK, report.tenant)
            before = await connection.fetchrow(_FIND_SAME, report.tenant, report.digest)
            if before is not None:
                if Kind(str(before["kind"])).is_threat != report.kind.is_threat:
                    # The engine cannot unlearn: the next generation is trained without the earlier report.
                    await connection.execute(_REBUILD, report.tenant)
            elif int(cast("int", await connection.fetchval(_COUNT, report.tenant))) >= MAX_REPORTS:
                raise TrainingFull(
                    f"This tenant has {MAX_REPORTS:,} reports, the maximum. Withdraw some, or reset the training."
                )
            uid = await _put(connection, report, actor, before)
            details = {"kind": report.kind, "uid": str(uid), "ggrid": report.ggrid and str(report.ggrid)}
            await record_event(
                connection, actor, "training.report", report.subject[:200], details, tenant=report.tenant
            )
            reported = MessageReported(uid, report.ggrid, report.kind, short(report.subject), actor.name)
            await record(connection, [new_event(reported, report.tenant, report.ggrid or uid)])
            row = await connection.fetchrow(_ONE, [report.tenant], uid)
        if row is None:
            raise ReportNotFound("The report was withdrawn while it was stored.")
        replaced = None if before is None else ReplacedReport(Kind(str(before["kind"])), _change(before))
        return _report(row), replaced

    async def save_change(self, scope: Scope, uid: UUID, change: SenderChange) -> None:
        """Store the change to sender history that a report caused, so that it can be undone."""
        async with self._database.connection() as connection:
            await connection.execute(_SAVE_CHANGE, scope.uids(), uid, msgspec.json.encode(change).decode())

    async def withdraw(self, scope: Scope, uid: UUID, actor: Actor) -> tuple[UUID, SenderChange | None]:
        """Delete a report; return its tenant and its change to sender history."""
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetchrow(_WITHDRAW, scope.uids(), uid)
            if row is None:
                raise ReportNotFound("There is no such report.")
            tenant = read(row, "tenant", UUID)
            if row["trained"]:  # or may be
                await connection.execute(_REBUILD, tenant)
            details = {"kind": row["kind"], "uid": str(uid)}
            await record_event(
                connection, actor, "training.withdraw", str(row["subject"])[:200], details, tenant=tenant
            )
        return tenant, _change(row)

    async def reset(self, scope: Scope, tenant: UUID, actor: Actor) -> int:
        """Delete all reports of a tenant; return their number."""
        _require(scope, tenant)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_ENSURE_TENANT, tenant)
            deleted = int((await connection.execute(_DELETE_ALL, tenant)).rpartition(" ")[2])
            await connection.execute(_REBUILD, tenant)
            await record_event(connection, actor, "training.reset", str(tenant), {"reports": deleted}, tenant=tenant)
        return deleted

    async def rebuild(self, scope: Scope, tenant: UUID, actor: Actor) -> None:
        """Train a new generation with all reports, also with rejected ones: a guard may have lacked their key."""
        _require(scope, tenant)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_ENSURE_TENANT, tenant)
            await connection.execute(_REBUILD, tenant)
            await connection.execute(_RETRY_REJECTED, tenant)
            await record_event(connection, actor, "training.rebuild", str(tenant), {}, tenant=tenant)

    async def page(
        self,
        scope: Scope,
        tenant: UUID,
        before: datetime | None = None,
        limit: int = 100,
        *,
        before_uid: UUID | None = None,
    ) -> Sequence[UserReport]:
        """Return the reports of a tenant, newest first; `before_uid` orders reports of the moment `before`."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_PAGE, scope.uids(), tenant, before, min(limit, MAX_PAGE), before_uid)
        return [_report(row) for row in rows]

    async def of_message(self, scope: Scope, ggrid: UUID) -> Sequence[UserReport]:
        """Return the reports about one message."""
        async with self._database.connection() as connection:
            return [_report(row) for row in await connection.fetch(_OF_MESSAGE, scope.uids(), ggrid)]

    async def statuses(self, scope: Scope) -> Sequence[TrainingStatus]:
        """Return the status of every tenant that has ever had a report."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_STATUSES, scope.uids())
        return [msgspec.convert(dict(cast("Mapping[str, object]", row)), TrainingStatus) for row in rows]

    async def status(self, scope: Scope, tenant: UUID) -> TrainingStatus:
        _require(scope, tenant)
        found = await self.statuses(Scope.of(tenant))
        return found[0] if found else TrainingStatus(tenant)

    @asynccontextmanager
    async def training_lock(self, scope: Scope) -> AsyncIterator[bool]:
        """Hold the deployment's lock for training; yield False if another guard holds it."""
        async with self._database.connection() as connection, connection.transaction():
            yield bool(await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _TRAINING_LOCK))

    async def pending(self, scope: Scope, limit: int) -> Sequence[PendingReport]:
        """Return reports to train with, the oldest of each tenant first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_PENDING, scope.uids(), limit)
        return [_pending(row) for row in rows]

    async def mark_trained(self, scope: Scope, report: PendingReport, *, rejected: bool) -> None:
        """Record that the engine was trained with a report in its generation, or rejected it."""
        _require(scope, report.tenant)
        async with self._database.connection() as connection:
            await connection.execute(_TRAINED, report.uid, report.generation, rejected)

    async def switch(self, scope: Scope) -> Sequence[tuple[UUID, range]]:
        """Activate the generations that are trained completely; return the tenants and their obsolete generations."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_SWITCH, scope.uids())
        return [
            (read(row, "tenant", UUID), range(read(row, "former", int), read(row, "generation", int))) for row in rows
        ]

    async def delete_old(self, scope: Scope, age: timedelta) -> int:
        """Delete reports above this age; the classifier forgets them with the next generation."""
        async with self._database.connection() as connection:
            before = await read_now(connection) - age
            return int((await connection.execute(_DELETE_OLD, before, scope.uids())).rpartition(" ")[2])


async def _put(connection: Connection, report: NewReport, actor: Actor, before: Row | None) -> UUID:
    """Write a report in place of the earlier one, if any; return the uid under which it is stored."""
    about = (report.ggrid, report.subject, actor.name)
    if before is not None and before["kept"] and report.contents is None:  # the contents are sealed for that uid
        await connection.execute(_UPDATE, before["uid"], report.kind, *about)
        return read(before, "uid", UUID)
    if before is not None:
        await connection.execute(_DELETE, before["uid"])
    message = (report.digest, report.size, report.contents)
    await connection.execute(_ADD, report.uid, report.tenant, report.kind, *message, *about)
    return report.uid


def _require(scope: Scope, tenant: UUID) -> None:
    if not scope.allows(tenant):
        raise TenantForbidden("This tenant is not yours.")


def _report(row: Row) -> UserReport:
    return UserReport(
        uid=read(row, "uid", UUID),
        tenant=read(row, "tenant", UUID),
        kind=Kind(str(row["kind"])),
        state=TrainingState(str(row["state"])),
        size=read(row, "size", int),
        ggrid=read_optional(row, "ggrid", UUID),
        subject=str(row["subject"]),
        reported_by=str(row["reported_by"]),
        reported_at=read(row, "reported_at", datetime),
    )


def _pending(row: Row) -> PendingReport:
    uid, tenant, wanted = read(row, "uid", UUID), read(row, "tenant", UUID), read(row, "wanted", int)
    return PendingReport(uid, tenant, Kind(str(row["kind"])), read(row, "contents", bytes), wanted)


def _change(row: Row) -> SenderChange | None:
    text = row["remembered"]
    return None if text is None else msgspec.json.decode(str(text), type=dict[str, object])
