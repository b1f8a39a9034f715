"""The figures of whole days in PostgreSQL, for reports about weeks: the sums of hourly rollups of days that ended.

A day is summed again if rows came late and its hours are still kept. It has no address and no text.
"""

from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

import msgspec

from mailwarden.database.pool import Connection
from mailwarden.database.rows import read
from mailwarden.history.store import DayFigures
from mailwarden.model.scope import Scope

ALL_TENANTS = UUID(int=0)  # the rollups of the whole deployment
DAY_RETENTION = timedelta(days=100)
DAY = timedelta(days=1)

_SUM = f"""
WITH counted AS (
    SELECT tenant, key, sum(value::bigint) AS messages FROM history_rollups, jsonb_each_text(counts)
    WHERE hourly AND bucket >= $2 AND bucket < $3
      AND (key LIKE 'decision:%' OR key LIKE 'verdict:%' OR key = 'policy.monitor')
    GROUP BY tenant, key
)
INSERT INTO history_days (tenant, day, counts)
SELECT tenant, $1::date, jsonb_object_agg(key, messages) FROM counted GROUP BY tenant
UNION ALL SELECT '{ALL_TENANTS}', $1::date, '{{}}'::jsonb
    WHERE NOT EXISTS (SELECT FROM counted WHERE tenant = '{ALL_TENANTS}')
ON CONFLICT (tenant, day) DO UPDATE SET counts = excluded.counts
"""  # noqa: S608 -- one constant
_DELETE = "DELETE FROM history_days WHERE day < $1"
_READ = "SELECT day, counts FROM history_days WHERE tenant = ANY($1::uuid[]) AND day >= $2 AND day < $3"
_COUNTED = "SELECT day FROM history_days WHERE tenant = $1 AND day >= $2 AND day < $3"


async def count_days(connection: Connection, begin: datetime, end: datetime, kept_from: datetime) -> None:
    """Sum the days that have ended and of which an hour since `begin` was counted; older hours may be deleted."""
    day = begin.astimezone(UTC).date()
    while (following := _midnight(day + DAY)) <= end:
        if _midnight(day) >= kept_from:
            await connection.execute(_SUM, day, _midnight(day), following)
        day += DAY
    await connection.execute(_DELETE, (end - DAY_RETENTION).date())


async def read_days(connection: Connection, scope: Scope, since: date, until: date) -> DayFigures:
    owners = [ALL_TENANTS] if scope.tenants is None else sorted(scope.tenants - {ALL_TENANTS})
    days: dict[date, dict[str, int]] = {}
    for row in await connection.fetch(_READ, owners, since, until):
        figures = days.setdefault(read(row, "day", date), {})
        for measure, messages in msgspec.json.decode(str(row["counts"]), type=dict[str, int]).items():
            figures[measure] = figures.get(measure, 0) + messages
    rows = await connection.fetch(_COUNTED, ALL_TENANTS, since, until)
    return DayFigures(days, frozenset(read(row, "day", date) for row in rows))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
