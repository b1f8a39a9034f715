"""The parts of a move outside of the switch: rows of a tenant are removed from a cell, and its history follows."""

from collections.abc import Callable, Sequence
from datetime import date
from typing import cast
from uuid import UUID

import asyncpg

from mailwarden.cells.tables import PREPARE, Rows, copy_rows
from mailwarden.history.postgresql.partitions import create_moved_days

# The lists take their entries with them, held messages their recipients, users their sessions.
_WIPE = (
    "DELETE FROM lists WHERE tenant = $1",
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
_WIPE_ENDPOINTS = "DELETE FROM event_endpoints WHERE tenants = ARRAY[$1]::uuid[]"
_DAYS = "SELECT DISTINCT day FROM history WHERE tenant = $1 ORDER BY day"
_MARK_LATE = "UPDATE history_rolled SET late_from = least(late_from, $1::date::timestamptz) WHERE rolled_to > $1::date"
_HISTORY_OF_DAY = "history.tenant = $1::uuid AND history.day = $2::date"
_OLD_COUNTS = Rows("history_days", conflict="DO NOTHING")
_WIPE_HISTORY = (
    "DELETE FROM history WHERE tenant = $1",
    "DELETE FROM history_days WHERE tenant = $1",
    "DELETE FROM history_rollups WHERE tenant = $1",
    "DELETE FROM relationships WHERE tenant = $1",
    "DELETE FROM thread_messages WHERE tenant = $1",
)


async def wipe(connection: asyncpg.Connection, tenant: UUID, *, endpoints: bool) -> None:
    """Delete the rows that background jobs act on; without `endpoints` those of events stay, and deliver the rest."""
    for statement in (*_WIPE, *((_WIPE_ENDPOINTS,) if endpoints else ())):
        await connection.execute(statement, tenant)


async def copy_history(
    source: asyncpg.Connection, target: asyncpg.Connection, tenant: UUID, report: Callable[[str], None]
) -> int:
    """Copy the history of a tenant day by day, each row once however often this runs; return the rows read."""
    days = [cast("date", row["day"]) for row in await source.fetch(_DAYS, tenant)]
    await create_moved_days(target, days)
    total = 0
    for day in reversed(days):  # the newest is wanted first
        async with target.transaction():
            await target.execute(PREPARE, str(tenant))
            rows = Rows("history", _HISTORY_OF_DAY, conflict="DO NOTHING")
            number = await copy_rows(source, target, rows, [tenant, day])
            await target.execute(_MARK_LATE, day)
        total += number
        report(f"history of {day}: {number:,} messages")
    async with target.transaction():
        await target.execute(PREPARE, str(tenant))
        await copy_rows(source, target, _OLD_COUNTS, [tenant])
    return total


async def wipe_history(connection: asyncpg.Connection, tenant: UUID) -> None:
    """Delete the history of a tenant that moved, and its endpoints of events."""
    async with connection.transaction():
        await connection.execute(PREPARE, str(tenant))
        for statement in (*_WIPE_HISTORY, _WIPE_ENDPOINTS):
            await connection.execute(statement, tenant)


def different(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the first name that only one of two cells has, "" if they are equal."""
    return next(iter(sorted(set(before) ^ set(after))), "")
