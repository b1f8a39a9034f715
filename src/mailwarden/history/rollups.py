"""Counts history by five minutes and by hours, so that a dashboard reads hundreds of counters, not millions of rows.

What is counted comes from the rows themselves and costs their writer nothing. The newest minutes are counted twice,
for a row is written when it is finished. Rows that come later still, after an outage, are told of by
whoever writes them, and what they belong to is counted once more.
"""

from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

from mailwarden.database.pool import Connection, Database
from mailwarden.history.durations import CLASSES_PER_DOUBLING, LAST_CLASS
from mailwarden.model.ggrid import first_ggrid
from mailwarden.telemetry.chore import Chore
from mailwarden.telemetry.logs import get_logger

INTERVAL = 30.0
BUCKET = timedelta(minutes=5)
HOUR = timedelta(hours=1)
KEPT = timedelta(days=8)
KEPT_FINE = timedelta(hours=3)  # of what is counted by five minutes
LATE = timedelta(minutes=5)  # longer than an analysis takes
EVERYBODY = UUID(int=0)  # under which the whole deployment is counted
_LOCK = 0x6D77726F6C6C7570

_log = get_logger("history.rollups")

# A row counts under the time that its ggrid carries, which is what the range below is a range of.
MEASURED = f"""
SELECT tenant, date_bin('5 minutes', to_timestamp(
           ('x' || left(replace(ggrid::text, '-', ''), 12))::bit(48)::bigint / 1000.0), 'epoch') AS bucket,
       unnest(tags || ARRAY['decision:' || decision, 'verdict:' || verdict, 'ms:' || least({LAST_CLASS}, floor(
           ln(greatest(extract(epoch FROM completed - created)::float8 * 1000, 1))
           / ln(2::float8) * {CLASSES_PER_DOUBLING}))::int]) AS measure
FROM history WHERE day BETWEEN $1::date AND $2::date AND ggrid >= $3 AND ggrid < $4
"""  # noqa: S608 -- two numbers of ours
_ROLL = f"""
WITH counted AS (SELECT tenant, bucket, measure, count(*) AS messages FROM ({MEASURED}) AS measured GROUP BY 1, 2, 3)
INSERT INTO history_rollups (tenant, hourly, bucket, counts)
SELECT tenant, false, bucket, jsonb_object_agg(measure, messages)
FROM (
    SELECT * FROM counted
    UNION ALL SELECT '{EVERYBODY}', bucket, measure, sum(messages) FROM counted GROUP BY 2, 3
) AS counted GROUP BY tenant, bucket
ON CONFLICT (tenant, hourly, bucket) DO UPDATE SET counts = excluded.counts
"""  # noqa: S608 -- as above
_ROLL_HOURS = """
INSERT INTO history_rollups (tenant, hourly, bucket, counts)
SELECT tenant, true, hour, jsonb_object_agg(key, messages)
FROM (
    SELECT tenant, date_bin('1 hour', bucket, 'epoch') AS hour, key, sum(value::bigint) AS messages
    FROM history_rollups, jsonb_each_text(counts) WHERE NOT hourly AND bucket >= $1 AND bucket < $2 GROUP BY 1, 2, 3
) AS counted GROUP BY tenant, hour
ON CONFLICT (tenant, hourly, bucket) DO UPDATE SET counts = excluded.counts
"""
_FORGET = "DELETE FROM history_rollups WHERE hourly AND bucket < $1 OR NOT hourly AND bucket < $2"
_ROLLED_TO = "SELECT rolled_to FROM history_rolled"
_LATE_FROM = """
UPDATE history_rolled SET late_from = NULL FROM (SELECT late_from AS told FROM history_rolled) AS before
WHERE late_from IS NOT NULL RETURNING told
"""
_TELL_LATE = "UPDATE history_rolled SET late_from = least(late_from, $1) WHERE rolled_to > $1"
_REMEMBER = """
INSERT INTO history_rolled (rolled_to) VALUES ($1) ON CONFLICT (only_row) DO UPDATE SET rolled_to = excluded.rolled_to
"""


class Rollups:
    """Counts what is new twice a minute; of several guards, one at a time."""

    def __init__(self, database: Database, interval: float = INTERVAL) -> None:
        self._database = database
        self._chore = Chore("history rollups", self.roll, interval)

    async def roll(self) -> datetime | None:
        """Count everything up to the newest full bucket and return its end, or None where another is at it."""
        end = floored(datetime.now(UTC))
        async with self._database.connection() as connection:
            if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
                return None
            try:
                await _roll_to(connection, end)
            finally:
                await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)
        return end

    def start(self) -> None:
        self._chore.start(rested=True)

    async def stop(self) -> None:
        await self._chore.stop()


def floored(moment: datetime, width: timedelta = BUCKET) -> datetime:
    """Return the beginning of the bucket that the moment is in."""
    seconds = width.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, UTC)


async def rolled_to(connection: Connection) -> datetime | None:
    return cast("datetime | None", await connection.fetchval(_ROLLED_TO))


async def tell_late(connection: Connection, began: datetime) -> None:
    """Have history counted once more from then on, where it was counted already."""
    await connection.execute(_TELL_LATE, floored(began))


def range_values(begin: datetime, end: datetime) -> tuple[object, ...]:
    """Return a range of time as MEASURED takes it."""
    return begin.date(), end.date(), first_ggrid(begin), first_ggrid(end)


async def _roll_to(connection: Connection, end: datetime) -> None:
    known = await rolled_to(connection)
    late = cast("datetime | None", await connection.fetchval(_LATE_FROM))
    if known is not None and known >= end and late is None:
        return
    begin = end - KEPT if known is None else known - LATE
    if late is not None:
        begin = min(begin, floored(late, HOUR))  # what made up an hour may be gone, so the hour is counted whole
    begin = max(begin, floored(end - KEPT, HOUR))
    while begin < end:
        until = min(floored(begin, HOUR) + HOUR, end)
        await connection.execute(_ROLL, *range_values(begin, until))
        await connection.execute(_ROLL_HOURS, floored(begin, HOUR), until)
        if known is None or until > known:
            await connection.execute(_REMEMBER, until)
        begin = until
    await connection.execute(_FORGET, end - KEPT, floored(end - KEPT_FINE, HOUR))
