"""The partitions of history: one for each day, created in advance and dropped after their retention."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from mailwarden.database.clock import read_now
from mailwarden.database.pool import Connection
from mailwarden.errors import CommandError, StorageUnavailable

# From today: a guard whose clock is further ahead creates no partition. Rows of the past may have waited in a journal.
MAX_AHEAD, MAX_BEHIND = timedelta(days=2), timedelta(days=30)
CLOCK_RETRY = 30
_LOCK = 0x6D77686973746F72  # serializes guards that create the same day
# The catalogue as a table like any other: pg_partition_tree reads a cache that lags behind another guard's commit.
_DAYS = """
SELECT right(relname, 8) AS day FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'history'::regclass AND relname ~ '^history_[0-9]{8}$'
"""


async def create_days(connection: Connection, days: Iterable[date]) -> set[date]:
    """Create the partitions of these days and of the day after, if they are near today; return every existing day."""
    near_days = {near for day in days for near in (day, day + timedelta(days=1))}
    wanted = {near for near in near_days if is_near(near)}
    existing = await existing_days(connection)
    if wanted <= existing:
        return existing
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        existing = await existing_days(connection)
        for day in sorted(wanted - existing):
            await connection.execute(_create_statement(day))
    return existing | wanted


def is_near(day: date) -> bool:
    """Return whether rows of this day are stored, by this host's clock."""
    return -MAX_BEHIND <= day - datetime.now(UTC).date() <= MAX_AHEAD


async def check_clock(connection: Connection) -> None:
    """Raise StorageUnavailable if this host's clock is wrong: rows that seem too far from today must wait then."""
    try:
        await read_now(connection)
    except CommandError as error:
        raise StorageUnavailable(
            "The clocks of this host and of PostgreSQL differ: history rows wait until they are set.",
            retry_after=CLOCK_RETRY,
        ) from error


async def create_old_day(connection: Connection, day: date) -> None:
    """Create the partition of a day, however old: its rows come from ClickHouse."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if day not in await existing_days(connection):
            await connection.execute(_create_statement(day))


async def existing_days(connection: Connection) -> set[date]:
    rows = await connection.fetch(_DAYS)
    return {datetime.strptime(str(row["day"]), "%Y%m%d").replace(tzinfo=UTC).date() for row in rows}


async def drop_days(connection: Connection, before: date) -> int:
    """Drop the partitions of earlier days, each in its own transaction so that writers wait briefly."""
    dropped = 0
    for day in sorted(await existing_days(connection)):
        if day < before:
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '2s'")
                await connection.execute(f"DROP TABLE IF EXISTS {_table(day)}")
            dropped += 1
    return dropped


def _create_statement(day: date) -> str:
    # Attaching a table takes a lighter lock than creating a partition in place: readers and writers continue.
    name, end = _table(day), day + timedelta(days=1)
    return f"""
        CREATE TABLE {name} (LIKE history INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMPRESSION);
        ALTER TABLE history ATTACH PARTITION {name} FOR VALUES FROM ('{day}') TO ('{end}');
    """


def _table(day: date) -> str:
    return f"history_{day:%Y%m%d}"
