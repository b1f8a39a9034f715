"""The dashboard's figures in PostgreSQL: rollups of history by five minutes and by hours, and their reader.

Rollups are counted from the rows, so writing a row costs nothing more. The newest minutes are counted twice, as a row
is written when its scan is finished. The store marks rows that arrive even later, after an outage, and their period
is counted again. The reader adds the rows that are not rolled up yet.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Protocol, cast
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct

from mailwarden.database.clock import read_now
from mailwarden.database.pool import EVERYTHING, Connection, Database, Row, scoped
from mailwarden.database.rows import read, read_optional
from mailwarden.database.visible import in_scope
from mailwarden.errors import SearchTooBroad
from mailwarden.history.postgresql.days import ALL_TENANTS, count_days
from mailwarden.history.recent import Recent
from mailwarden.history.store import Bucket, Range, Statistics
from mailwarden.model.ggrid import first_ggrid
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.scope import Scope

BUCKET = timedelta(minutes=5)
HOUR = timedelta(hours=1)
HOURLY_RETENTION = timedelta(days=8)
BUCKET_RETENTION = timedelta(hours=3)
LATE = timedelta(minutes=5)  # longer than an analysis takes
FRESH_SECONDS = 5.0
TOP_TAGS = 60  # the dashboard selects from them: many tags only say that a check passed
RATE_WINDOW = timedelta(seconds=60)
CLASSES_PER_DOUBLING = 8  # of durations, so that a class is accurate to nine percent
LAST_CLASS = 20 * CLASSES_PER_DOUBLING  # 2^20 ms, a quarter of an hour, and everything longer
_LOCK = 0x6D77726F6C6C7570

# A row counts at the time in its ggrid, by which the range below selects.
_MEASURED = f"""
SELECT tenant, date_bin('5 minutes', to_timestamp(
           ('x' || left(replace(ggrid::text, '-', ''), 12))::bit(48)::bigint / 1000.0), 'epoch') AS bucket,
       unnest(tags || ARRAY['decision:' || decision, 'verdict:' || verdict, 'ms:' || least({LAST_CLASS}, floor(
           ln(greatest(extract(epoch FROM completed - created)::float8 * 1000, 1))
           / ln(2::float8) * {CLASSES_PER_DOUBLING}))::int]) AS measure
FROM history WHERE day BETWEEN $1::date AND $2::date AND ggrid >= $3 AND ggrid < $4
"""  # noqa: S608 -- two constants
_ROLL = f"""
WITH counted AS (SELECT tenant, bucket, measure, count(*) AS messages FROM ({_MEASURED}) AS measured GROUP BY 1, 2, 3)
INSERT INTO history_rollups (tenant, hourly, bucket, counts)
SELECT tenant, false, bucket, jsonb_object_agg(measure, messages)
FROM (
    SELECT * FROM counted
    UNION ALL SELECT '{ALL_TENANTS}', bucket, measure, sum(messages) FROM counted GROUP BY 2, 3
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
_DELETE = "DELETE FROM history_rollups WHERE hourly AND bucket < $1 OR NOT hourly AND bucket < $2"
_READ_ROLLED_TO = "SELECT rolled_to FROM history_rolled"
# Every change of the row changes its xmin, also a mark that leaves `late_from` as it is.
_READ_ROLLED = "SELECT rolled_to, late_from, xmin::text AS version FROM history_rolled"
_LOCK_ROLLED = "SELECT xmin::text FROM history_rolled FOR UPDATE"
_CLEAR_LATE = "UPDATE history_rolled SET late_from = NULL WHERE xmin::text = $1"
# By PostgreSQL's clock: that of a guard may be wrong.
_MARK_LATE = """
UPDATE history_rolled SET late_from = least(late_from, $1)
WHERE rolled_to > $1 AND $2::timestamptz < clock_timestamp() - $3::interval
"""
_WRITE_ROLLED_TO = """
INSERT INTO history_rolled (rolled_to) VALUES ($1)
ON CONFLICT (only_row) DO UPDATE SET rolled_to = greatest(history_rolled.rolled_to, excluded.rolled_to)
RETURNING xmin::text
"""
_COUNTED = """
SELECT bucket, counts FROM history_rollups
WHERE tenant = ANY($1::uuid[]) AND hourly = $2 AND bucket >= $3 AND bucket < $4
"""
_UNCOUNTED = f"""
SELECT bucket, measure, count(*) AS messages
FROM ({_MEASURED} AND {in_scope(scope="$5")}) AS measured GROUP BY 1, 2
"""  # noqa: S608 -- as above
_RATE = f"""
SELECT count(*) FROM history WHERE day BETWEEN $1::date AND $2::date AND ggrid >= $3 AND ggrid < $4
    AND {in_scope(scope="$5")}
"""  # noqa: S608 -- as above

Counted = tuple[datetime, str, int]  # the bucket, the measure, how many messages

# The length of each range, and the buckets of its chart.
LENGTHS = {
    Range.HOUR: (timedelta(hours=1), BUCKET),
    Range.DAY: (timedelta(hours=24), HOUR),
    Range.WEEK: (timedelta(days=7), 4 * HOUR),
}


class RowCounter(Protocol):
    """Counts rows of history by tenant, bucket and measure; the counts of PostgreSQL's rows are below."""

    async def roll(self, connection: Connection, begin: datetime, end: datetime) -> None:
        """Write the rollups of the buckets from `begin` to `end`."""

    async def counts(
        self, connection: Connection, tenants: Sequence[UUID] | None, begin: datetime, end: datetime
    ) -> Iterable[Counted]:
        """Return the counts of the rows of these tenants, None is all."""

    async def messages(
        self, connection: Connection, tenants: Sequence[UUID] | None, begin: datetime, end: datetime
    ) -> int:
        """Return the number of rows of these tenants."""


class PostgresqlRows:
    """Counts the rows in PostgreSQL."""

    async def roll(self, connection: Connection, begin: datetime, end: datetime) -> None:
        await connection.execute(_ROLL, *range_values(begin, end))

    async def counts(
        self, connection: Connection, tenants: Sequence[UUID] | None, begin: datetime, end: datetime
    ) -> Iterable[Counted]:
        rows = await connection.fetch(_UNCOUNTED, *range_values(begin, end), tenants)
        return [(read(row, "bucket", datetime), str(row["measure"]), read(row, "messages", int)) for row in rows]

    async def messages(
        self, connection: Connection, tenants: Sequence[UUID] | None, begin: datetime, end: datetime
    ) -> int:
        return cast("int", await connection.fetchval(_RATE, *range_values(begin, end), tenants))


class StatisticsReader:
    """Reads the rollups and the rows that are not rolled up yet, and caches the result for some seconds."""

    def __init__(self, database: Database, rows: RowCounter) -> None:
        self._database = database
        self._rows = rows
        self._recent = Recent(FRESH_SECONDS, self._read)

    async def read(self, scope: Scope, range_: Range) -> Statistics:
        return await self._recent.get(scope, range_)

    async def read_today(self, scope: Scope) -> Mapping[str, int]:
        """Return the decisions and verdicts since midnight UTC."""
        now = datetime.now(UTC)
        midnight = bucket_start(now, timedelta(days=1))
        totals: Counter[str] = Counter()
        async with self._reading() as connection:
            counts = await _counts(connection, self._rows, scope.uids(), midnight, now, hourly=True)
            for _, measure, messages in counts:
                if measure.startswith(("decision:", "verdict:")):
                    totals[measure] += messages
        return totals

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Connection]:
        """Begin a read-only snapshot; raise SearchTooBroad if a statement takes too long."""
        first = "SET LOCAL statement_timeout = '2s'; SET LOCAL plan_cache_mode = force_custom_plan"
        async with (
            self._database.connection() as connection,
            scoped(connection, EVERYTHING, snapshot=True, first=first),
        ):
            try:
                yield connection
            except asyncpg.QueryCanceledError:
                raise SearchTooBroad("Counting these messages takes too long.") from None

    async def _read(self, scope: Scope, range_: Range) -> Statistics:
        now = datetime.now(UTC)
        length, width = LENGTHS[range_]
        since = bucket_start(now - length + width, width)
        async with self._reading() as connection:
            counts = await _counts(connection, self._rows, scope.uids(), since, now, hourly=range_ is not Range.HOUR)
            recent = await self._rows.messages(connection, scope.uids(), now - RATE_WINDOW, now)
        return _statistics(range_, since, now, counts, recent / RATE_WINDOW.total_seconds())


async def update_rollups(connection: Connection, rows: RowCounter) -> datetime | None:
    """Count all rows up to the newest full bucket and return its end; None if another process is counting.

    Each hour is a transaction under the lock: a lock of the session would not hold behind a connection pooler. Two
    processes that begin between two hours of each other count some hours twice, with the same result.
    """
    end = bucket_start(await read_now(connection))
    async with connection.transaction():
        if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _LOCK):
            return None
        row = await connection.fetchrow(_READ_ROLLED)
        rolled = _Rolled() if row is None else _Rolled.of(row)
    if rolled.to is None or rolled.to < end or rolled.late is not None:
        version = await _roll_to(connection, rows, rolled, end)
        if rolled.late is not None:
            await connection.execute(_CLEAR_LATE, version)
    return end


class _Rolled(Struct, frozen=True):
    """Up to when rows are counted, and from when again; the mark stays until all is counted, so no failure loses it."""

    to: datetime | None = None
    late: datetime | None = None
    version: str | None = None

    @classmethod
    def of(cls, row: Row) -> "_Rolled":
        late = read_optional(row, "late_from", datetime)
        return cls(read(row, "rolled_to", datetime), late, str(row["version"]))


async def mark_late(connection: Connection, oldest: datetime) -> None:
    """Have the rows since then counted again if they were counted before; call it after writing late rows."""
    await connection.execute(_MARK_LATE, bucket_start(oldest), oldest, LATE)


async def _roll_to(connection: Connection, rows: RowCounter, rolled: _Rolled, end: datetime) -> str | None:
    """Count the hours up to `end`; return the version of the mark that this covers, "" if there is a newer one."""
    known, version = rolled.to, rolled.version
    begin = end - HOURLY_RETENTION if known is None else known - LATE
    if rolled.late is not None:
        # Buckets of that hour may be deleted, so the whole hour is counted.
        begin = min(begin, bucket_start(rolled.late, HOUR))
    begin = first = max(begin, bucket_start(end - HOURLY_RETENTION, HOUR))
    while begin < end:
        until = min(bucket_start(begin, HOUR) + HOUR, end)
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await rows.roll(connection, begin, until)
            await connection.execute(_ROLL_HOURS, bucket_start(begin, HOUR), until)
            if known is None or until > known:
                version = await _write_rolled_to(connection, until, version)
        begin = until
    await count_days(connection, first, end, end - HOURLY_RETENTION)
    await connection.execute(_DELETE, end - HOURLY_RETENTION, bucket_start(end - BUCKET_RETENTION, HOUR))
    return version


async def _write_rolled_to(connection: Connection, until: datetime, version: str | None) -> str:
    """Write how far is counted; return the new version, or "" if another process changed the row after `version`."""
    before = cast("str | None", await connection.fetchval(_LOCK_ROLLED))
    after = cast("str", await connection.fetchval(_WRITE_ROLLED_TO, until))
    return after if before == version else ""


async def _counts(
    connection: Connection,
    rows: RowCounter,
    tenants: Sequence[UUID] | None,
    since: datetime,
    now: datetime,
    *,
    hourly: bool,
) -> Iterator[Counted]:
    """Return the rollups, and the counts of the newest rows that are not rolled up yet."""
    known = await _rolled_to(connection)
    begin = max(known, since) if known is not None else since
    owners = [ALL_TENANTS] if tenants is None else [tenant for tenant in tenants if tenant != ALL_TENANTS]
    counted = await connection.fetch(_COUNTED, owners, hourly, since, begin)
    uncounted = await rows.counts(connection, tenants, begin, now)
    return chain(_rolled(counted), uncounted)


def _rolled(rows: Sequence[Row]) -> Iterator[Counted]:
    for row in rows:
        for measure, messages in msgspec.json.decode(str(row["counts"]), type=dict[str, int]).items():
            yield read(row, "bucket", datetime), measure, messages


def _statistics(range_: Range, since: datetime, now: datetime, counts: Iterable[Counted], rate: float) -> Statistics:
    width = LENGTHS[range_][1]
    totals: Counter[str] = Counter()
    starts = [since + number * width for number in range(int((now - since) / width) + 1)]
    decisions: dict[datetime, Counter[Decision]] = {start: Counter() for start in starts}
    for bucket, measure, messages in counts:
        totals[measure] += messages
        if measure.startswith("decision:"):
            start = bucket_start(bucket, width)
            if start in decisions:
                decisions[start][Decision(measure[9:])] += messages
    durations = {int(measure[3:]): count for measure, count in totals.items() if measure.startswith("ms:")}
    tags = Counter({measure: count for measure, count in totals.items() if ":" not in measure})
    return Statistics(
        range=range_,
        since=since,
        until=now,
        width=width,
        buckets=tuple(Bucket(start, dict(counted)) for start, counted in decisions.items()),
        decisions={each: totals[f"decision:{each}"] for each in Decision},
        verdicts={each: totals[f"verdict:{each}"] for each in Verdict},
        tags=tuple(sorted(tags.items(), key=lambda pair: (-pair[1], pair[0]))[:TOP_TAGS]),
        p50=_percentile(durations, 0.5),
        p95=_percentile(durations, 0.95),
        per_second=rate,
    )


def _percentile(counts: Mapping[int, int], part: float) -> float | None:
    """Return the milliseconds that `part` of the messages did not exceed; None without messages."""
    total = sum(counts.values())
    if not total:
        return None
    seen = 0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= part * total:
            return float(2 ** ((number + 0.5) / CLASSES_PER_DOUBLING))
    return None


def bucket_start(moment: datetime, width: timedelta = BUCKET) -> datetime:
    """Return the start of the bucket that contains the moment."""
    seconds = width.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, UTC)


async def _rolled_to(connection: Connection) -> datetime | None:
    return cast("datetime | None", await connection.fetchval(_READ_ROLLED_TO))


def range_values(begin: datetime, end: datetime) -> tuple[object, ...]:
    """Return the parameters of _MEASURED."""
    return begin.date(), end.date(), first_ggrid(begin), first_ggrid(end)
