"""The parts of a move outside of the switch: rows of a tenant are removed from a cell, and its history follows."""

from collections.abc import Callable, Sequence
from datetime import date
from typing import cast
from uuid import UUID

import asyncpg

from mailwarden.cells.places import LocalPlace, lock_place
from mailwarden.cells.tables import PREPARE, Rows, copy, copy_rows
from mailwarden.history.postgresql.days import ALL_TENANTS
from mailwarden.history.postgresql.partitions import create_moved_days

# Held messages take their recipients with them, users their sessions.
_WIPE_ACTIVE = (
    "DELETE FROM feeds WHERE tenant = $1",
    "DELETE FROM quarantine WHERE tenant = $1",
    "DELETE FROM quarantine_digests WHERE tenant = $1",
    "DELETE FROM lessons WHERE tenant = $1",
    "DELETE FROM learning WHERE tenant = $1",
    "DELETE FROM case_reports WHERE tenant = $1",
    "DELETE FROM cases WHERE tenant = $1",
    "DELETE FROM case_report_days WHERE tenant = $1",
    "DELETE FROM weekly_report_mails WHERE tenant = $1",
    "DELETE FROM weekly_reports WHERE tenant = $1",
    "DELETE FROM people WHERE tenants = ARRAY[$1]::uuid[]",
    "UPDATE people SET tenants = array_remove(tenants, $1) WHERE $1 = ANY (tenants)",
    "DELETE FROM api_keys WHERE tenants = ARRAY[$1]::uuid[]",
    "UPDATE api_keys SET tenants = array_remove(tenants, $1) WHERE $1 = ANY (tenants)",
)
_WIPE_LISTS = "DELETE FROM lists WHERE tenant = $1"  # with their entries
_WIPE_ENDPOINTS = "DELETE FROM event_endpoints WHERE tenants = ARRAY[$1]::uuid[]"
_DAYS = "SELECT DISTINCT day FROM history WHERE tenant = $1 ORDER BY day"
_MARK_LATE = "UPDATE history_rolled SET late_from = least(late_from, $1::date::timestamptz) WHERE rolled_to > $1::date"
_HISTORY_OF_DAY = "history.tenant = $1::uuid AND history.day = $2::date"
_STAGE_COUNTS = "CREATE TEMP TABLE moved_counts ON COMMIT DROP AS SELECT day, counts FROM history_days WITH NO DATA"
_OLD_COUNTS = "SELECT day, counts FROM history_days WHERE tenant = $1::uuid"
# The counts of the whole deployment contain those of the tenant from then on; days whose hours are kept are summed
# again anyway. The order is that of the task that sums them.
_TAKE_COUNTS = f"""
WITH added AS (
    INSERT INTO history_days (tenant, day, counts) SELECT $1, day, counts FROM moved_counts ORDER BY day
    ON CONFLICT DO NOTHING RETURNING day, counts
)
INSERT INTO history_days AS total (tenant, day, counts) SELECT '{ALL_TENANTS}', day, counts FROM added
ON CONFLICT (tenant, day) DO UPDATE SET counts = coalesce((
    SELECT jsonb_object_agg(key, messages) FROM (
        SELECT key, sum(value::bigint) AS messages FROM (
            SELECT * FROM jsonb_each_text(total.counts) UNION ALL SELECT * FROM jsonb_each_text(excluded.counts)
        ) AS each GROUP BY key
    ) AS summed), '{{}}')
"""  # noqa: S608 -- one constant
_WIPE_DAY = "DELETE FROM history WHERE tenant = $1 AND day = $2"
# The counts of the whole deployment are without those of the tenant from then on.
_SUBTRACT = """
UPDATE {table} AS total SET counts = coalesce((
    SELECT jsonb_object_agg(key, rest) FROM (
        SELECT key, value::bigint - coalesce((own.counts ->> key)::bigint, 0) AS rest FROM jsonb_each_text(total.counts)
    ) AS counted WHERE rest > 0), '{{}}')
FROM {table} AS own WHERE own.tenant = $1 AND total.tenant = '{all_tenants}' AND {same}
"""
_WIPE_REST = (
    _SUBTRACT.format(
        table="history_rollups", all_tenants=ALL_TENANTS, same="total.hourly = own.hourly AND total.bucket = own.bucket"
    ),
    _SUBTRACT.format(table="history_days", all_tenants=ALL_TENANTS, same="total.day = own.day"),
    "DELETE FROM history_days WHERE tenant = $1",
    "DELETE FROM history_rollups WHERE tenant = $1",
)
_WIPE_SENDERS = ("DELETE FROM relationships WHERE tenant = $1", "DELETE FROM thread_messages WHERE tenant = $1")


async def wipe_active(connection: asyncpg.Connection, tenant: UUID, *, endpoints: bool = True) -> None:
    """Delete the rows that background jobs act on; without `endpoints` those of events stay, and deliver the rest."""
    for statement in (*_WIPE_ACTIVE, *((_WIPE_ENDPOINTS,) if endpoints else ())):
        await connection.execute(statement, tenant)


async def wipe_senders(connection: asyncpg.Connection, tenant: UUID) -> None:
    """Delete the sender history."""
    for statement in _WIPE_SENDERS:
        await connection.execute(statement, tenant)


async def wipe(connection: asyncpg.Connection, tenant: UUID) -> None:
    """Delete the rows that background jobs act on, and the lists."""
    await wipe_active(connection, tenant)
    await connection.execute(_WIPE_LISTS, tenant)


async def copy_history(
    source: asyncpg.Connection, target: asyncpg.Connection, tenant: UUID, report: Callable[[str], None]
) -> int:
    """Copy the history of a tenant day by day, each row once however often this runs; return the rows read."""
    total = 0
    for day in await _days(source, target, tenant):
        number = await _copy_day(source, target, tenant, day)
        total += number
        report(f"history of {day}: {number:,} messages")
    await copy_counts(source, target, tenant)
    return total


async def move_history(
    source: asyncpg.Connection,
    target: asyncpg.Connection,
    tenant: UUID,
    moved: LocalPlace,
    report: Callable[[str], None],
) -> int:
    """Let late rows of history follow, and remove the history of a tenant from its old cell; return the rows read.

    Each day is copied and deleted in one snapshot, so that a row that arrives meanwhile stays for the next run.
    """
    total = 0
    for day in await _days(source, target, tenant):
        async with source.transaction(isolation="repeatable_read"):
            await source.execute(PREPARE, str(tenant))
            await lock_place(source, tenant, moved)
            total += await _copy_day(source, target, tenant, day)
            await source.execute(_WIPE_DAY, tenant, day)
        report(f"history of {day}: moved")
    return total


async def wipe_rest(source: asyncpg.Connection, target: asyncpg.Connection, tenant: UUID, moved: LocalPlace) -> None:
    """Remove what a tenant has in its old cell beside its history."""
    async with source.transaction():
        await source.execute(PREPARE, str(tenant))
        await lock_place(source, tenant, moved)
        await copy_counts(source, target, tenant)
        for statement in (*_WIPE_REST, *_WIPE_SENDERS, _WIPE_ENDPOINTS, _WIPE_LISTS):
            await source.execute(statement, tenant)


async def _days(source: asyncpg.Connection, target: asyncpg.Connection, tenant: UUID) -> Sequence[date]:
    """Return the days with history, the newest first: it is wanted first; the other cell can store them all."""
    days = [cast("date", row["day"]) for row in await source.fetch(_DAYS, tenant)]
    await create_moved_days(target, days)
    return days[::-1]


async def _copy_day(source: asyncpg.Connection, target: asyncpg.Connection, tenant: UUID, day: date) -> int:
    async with target.transaction():
        await target.execute(PREPARE, str(tenant))
        rows = Rows("history", _HISTORY_OF_DAY, conflict="DO NOTHING")
        number = await copy_rows(source, target, rows, [tenant, day])
        await target.execute(_MARK_LATE, day)
    return number


async def copy_counts(source: asyncpg.Connection, target: asyncpg.Connection, tenant: UUID) -> None:
    """Copy the counts of whole days; each that is new is added to those of the whole deployment."""
    async with target.transaction():
        await target.execute(PREPARE, str(tenant))
        await target.execute(_STAGE_COUNTS)
        if await copy(source, target, _OLD_COUNTS, [tenant], "moved_counts"):
            await target.execute(_TAKE_COUNTS, tenant)
        await target.execute("DROP TABLE moved_counts")


def different(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the first name that only one of two cells has, "" if they are equal."""
    return next(iter(sorted(set(before) ^ set(after))), "")
