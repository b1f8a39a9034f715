"""The sender history of a tenant in a move: copied while the tenant is in use, the last changes while it is not.

No index finds the rows that a transaction has written. All rows are therefore looked at once more just before changes
pause. Within the pause the days bound the look, because guards store each sighting under the current day. Only reports
of users change older rows: after one, all rows are looked at again.
"""

from datetime import date, datetime, timedelta
from typing import cast
from uuid import UUID

import asyncpg
from msgspec import Struct

from mailwarden.cells.tables import Rows, copy, copy_rows

CLOCKS = timedelta(days=3)  # that the clock of a guard may differ, and more
REPORT_SECONDS = 600.0  # a report changes sender history shortly after its audit event
_KNOWN = """
UPDATE SET messages = greatest(known.messages, EXCLUDED.messages), days = greatest(known.days, EXCLUDED.days),
    first_seen = least(known.first_seen, EXCLUDED.first_seen), last_seen = greatest(known.last_seen, EXCLUDED.last_seen)
"""
_REPLACED = """
UPDATE SET messages = EXCLUDED.messages, days = EXCLUDED.days, first_seen = EXCLUDED.first_seen,
    last_seen = EXCLUDED.last_seen
"""
SENDERS = Rows("relationships", conflict=f"(tenant, pair) DO {_KNOWN}")
THREADS = Rows("thread_messages", conflict="DO NOTHING")
# Rows that the transaction $2 or a later one has written; a row of another age is copied needlessly at worst.
_WRITTEN_SINCE = "{table}.tenant = $1::uuid AND age({table}.xmin) <= age($2::text::xid8::xid)"
_WRITTEN_SENDERS = _WRITTEN_SINCE.format(table="relationships")
_WRITTEN_THREADS = _WRITTEN_SINCE.format(table="thread_messages")
_CHANGED_SENDERS = Rows("relationships", _WRITTEN_SENDERS, conflict=f"(tenant, pair) DO {_REPLACED}")
_CHANGED_THREADS = Rows("thread_messages", _WRITTEN_THREADS, conflict="DO NOTHING")
RECENT_SENDERS = Rows(
    "relationships",
    f"{_WRITTEN_SENDERS} AND relationships.last_seen >= $3::date",
    conflict=f"(tenant, pair) DO {_REPLACED}",
)
RECENT_THREADS = Rows(
    "thread_messages", f"{_WRITTEN_THREADS} AND thread_messages.day >= $3::date", conflict="DO NOTHING"
)
_MARK = """
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS since, now() AS moment,
    (now() AT TIME ZONE 'UTC')::date AS day
"""
_REPORTED = """
SELECT EXISTS (SELECT FROM audit WHERE tenant = $1 AND moment >= $2::timestamptz - make_interval(secs => $3)
    AND action IN ('learning.report', 'learning.withdraw'))
"""
_COUNT = "SELECT count(*) FROM relationships WHERE tenant = $1"
_STAGE = "CREATE TEMP TABLE known_senders ON COMMIT DROP AS SELECT pair FROM relationships WITH NO DATA"
_PAIRS = "SELECT pair FROM relationships WHERE tenant = $1"
_DROP = """
DELETE FROM relationships
WHERE tenant = $1 AND NOT EXISTS (SELECT FROM known_senders WHERE known_senders.pair = relationships.pair)
"""


class SenderMark(Struct, frozen=True):
    """The last look at all rows: `since` is the first transaction that it may have missed."""

    since: str
    moment: datetime
    day: date


async def copy_changes(source: asyncpg.Connection, target: asyncpg.Connection, tenant: UUID, since: str) -> SenderMark:
    """Copy what was written by this transaction or later, and remove what is gone.

    The source is in a transaction with one snapshot, the target in one that writes.
    """
    row = await source.fetchrow(_MARK)
    assert row is not None
    mark = SenderMark(str(row["since"]), cast("datetime", row["moment"]), cast("date", row["day"]))
    await copy_rows(source, target, _CHANGED_SENDERS, [tenant, since])
    await copy_rows(source, target, _CHANGED_THREADS, [tenant, since])
    if await source.fetchval(_COUNT, tenant) != await target.fetchval(_COUNT, tenant):
        await target.execute(_STAGE)
        await copy(source, target, _PAIRS, [tenant], "known_senders")
        await target.execute(_DROP, tenant)
        await target.execute("DROP TABLE known_senders")
    return mark


async def copy_last_changes(
    source: asyncpg.Connection, target: asyncpg.Connection, tenant: UUID, mark: SenderMark
) -> None:
    """Copy what was written after the last look at all rows, while no other transaction writes."""
    if await source.fetchval(_REPORTED, tenant, mark.moment, REPORT_SECONDS):
        await copy_changes(source, target, tenant, mark.since)
        return
    for rows in (RECENT_SENDERS, RECENT_THREADS):
        await copy_rows(source, target, rows, [tenant, mark.since, mark.day - CLOCKS])
