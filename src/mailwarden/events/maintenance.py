"""The partitions of the outbox: created days in advance, and dropped after the retention."""

from datetime import UTC, date, datetime, timedelta
from typing import cast

from mailwarden.database.clock import read_now
from mailwarden.database.pool import Connection, Database
from mailwarden.database.rows import read
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.periodic_task import PeriodicTask

INTERVAL = 3_600.0
AHEAD = 3  # days
BATCH = 10_000
_LOCK = 0x6D77_6576_656E_7473  # serializes guards that create or drop the same day
_DAYS = """
SELECT right(relname, 8) AS day FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'events'::regclass AND relname ~ '^events_[0-9]{8}$'
"""
_TODAY = "SELECT (now() AT TIME ZONE 'UTC')::date"
_REMOVED = "UPDATE events_removed SET number = greatest(number, $1)"
# Rows without a partition of their own: of the first day, and of days before which no guard was running.
_DELETE = """
WITH gone AS (
    DELETE FROM events_default WHERE number IN (
        SELECT number FROM events_default WHERE time < $1 ORDER BY number LIMIT $2)
    RETURNING number
)
SELECT count(*) AS rows, coalesce(max(number), 0) AS number FROM gone
"""

_log = get_logger("events.maintenance")


class EventRetention:
    """Runs once an hour in every guard; concurrent runs are safe."""

    def __init__(self, database: Database, days: int, interval: float = INTERVAL) -> None:
        self._database = database
        self._days = days
        self._periodic_task = PeriodicTask("event retention", self._run, interval)

    def start(self) -> None:
        self._periodic_task.start(at_once=True)

    async def stop(self) -> None:
        await self._periodic_task.stop()

    async def create_days(self) -> None:
        """Create the partitions of the next days.

        The present day is left out: a row that is being written to the default partition would be rejected there.
        """
        async with self._database.connection() as connection:
            today = cast("date", await connection.fetchval(_TODAY))
            wanted = {today + timedelta(days=number) for number in range(1, AHEAD + 1)}
            if wanted <= await existing_days(connection):
                return
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                await connection.execute("SET LOCAL lock_timeout = '2s'")
                for day in sorted(wanted - await existing_days(connection)):
                    await connection.execute(_create_statement(day))

    async def delete_days(self) -> int:
        """Delete the events before the retention; return the number of partitions that were dropped."""
        async with self._database.connection() as connection:
            before = (await read_now(connection)).date() - timedelta(days=self._days)
            old = sorted(day for day in await existing_days(connection) if day < before)
            for day in old:
                await _drop(connection, day)
            await _delete_without_partition(connection, before)
        return len(old)

    async def _run(self) -> None:
        await self.create_days()
        if days := await self.delete_days():
            _log.info("event_days_deleted", days=days)


async def existing_days(connection: Connection) -> set[date]:
    rows = await connection.fetch(_DAYS)
    return {datetime.strptime(str(row["day"]), "%Y%m%d").replace(tzinfo=UTC).date() for row in rows}


async def _drop(connection: Connection, day: date) -> None:
    """Drop a day and record its last number, so that a reader behind it gets an error instead of a gap."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        # While a dump reads the table, writers would queue behind this lock: give up soon, and try again in an hour.
        await connection.execute("SET LOCAL lock_timeout = '200ms'")
        if day not in await existing_days(connection):
            return
        last = await connection.fetchval(f"SELECT max(number) FROM {_table(day)}")  # noqa: S608 -- a name of ours
        if last is not None:
            await connection.execute(_REMOVED, last)
        await connection.execute(f"DROP TABLE {_table(day)}")


async def _delete_without_partition(connection: Connection, before: date) -> None:
    moment = datetime(before.year, before.month, before.day, tzinfo=UTC)
    while True:
        async with connection.transaction():
            row = await connection.fetchrow(_DELETE, moment, BATCH)
            assert row is not None
            if row["rows"]:
                await connection.execute(_REMOVED, row["number"])
        if read(row, "rows", int) < BATCH:
            return


def _create_statement(day: date) -> str:
    # Attaching a table takes a lighter lock than creating a partition in place: readers and writers continue.
    name, end = _table(day), day + timedelta(days=1)
    return f"""
        CREATE TABLE {name} (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMPRESSION);
        ALTER TABLE events ATTACH PARTITION {name} FOR VALUES FROM ('{day} 00:00+00') TO ('{end} 00:00+00');
    """


def _table(day: date) -> str:
    return f"events_{day:%Y%m%d}"
