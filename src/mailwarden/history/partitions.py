"""The days of history as partitions: made before they are needed, dropped when they are too old."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from mailwarden.database.pool import Connection

REACH = timedelta(days=2)  # a clock that is further off makes no partition
_LOCK = 0x6D77686973746F72  # guards that make the same day at once do it one after the other
# The catalogue as a table like any other: pg_partition_tree reads a cache that lags behind another guard's commit.
_DAYS = """
SELECT right(relname, 8) AS day FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'history'::regclass AND relname ~ '^history_[0-9]{8}$'
"""


def today() -> date:
    return datetime.now(UTC).date()


async def make_days(connection: Connection, days: Iterable[date]) -> set[date]:
    """Make the partitions of these days where they are within reach of today; return every day there is."""
    wanted = {near for day in days for near in (day, day + timedelta(days=1)) if abs(near - today()) <= REACH}
    there = await days_kept(connection)
    if wanted <= there:
        return there
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        there = await days_kept(connection)
        for day in sorted(wanted - there):
            await connection.execute(_making(day))
    return there | wanted


async def days_kept(connection: Connection) -> set[date]:
    rows = await connection.fetch(_DAYS)
    return {datetime.strptime(str(row["day"]), "%Y%m%d").replace(tzinfo=UTC).date() for row in rows}


async def drop_days(connection: Connection, before: date) -> int:
    """Drop the partitions of days before the given one, each in its own transaction so that writers wait little."""
    dropped = 0
    for day in sorted(await days_kept(connection)):
        if day < before:
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '2s'")
                await connection.execute(f"DROP TABLE IF EXISTS {_name(day)}")
            dropped += 1
    return dropped


def _making(day: date) -> str:
    # Attaching a table takes a lighter lock than making a partition in place: readers and writers go on.
    name, end = _name(day), day + timedelta(days=1)
    return f"""
        CREATE TABLE {name} (LIKE history INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMPRESSION);
        ALTER TABLE history ATTACH PARTITION {name} FOR VALUES FROM ('{day}') TO ('{end}');
    """


def _name(day: date) -> str:
    return f"history_{day:%Y%m%d}"
