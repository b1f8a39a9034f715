"""What a dashboard shows of history: how many messages came to which decision, how long they took, and why."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Protocol, cast
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct

from mailwarden.database.pool import Connection, Database
from mailwarden.database.scoped import EVERYTHING, scoped
from mailwarden.errors import SearchTooBroad
from mailwarden.history.durations import percentile
from mailwarden.history.rollups import BUCKET, EVERYBODY, HOUR, MEASURED, floored, range_values, rolled_to
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.scope import Scope

FRESH_SECONDS = 5.0
MAX_REMEMBERED = 256
TOP_TAGS = 60  # whoever shows them chooses: many of them say only that all is well
NOW = timedelta(seconds=60)  # over which the present rate is measured

_COUNTED = """
SELECT bucket, counts FROM history_rollups
WHERE tenant = ANY($1::uuid[]) AND hourly = $2 AND bucket >= $3 AND bucket < $4
"""
_UNCOUNTED = f"""
SELECT bucket, measure, count(*) AS messages
FROM ({MEASURED} AND ($5::uuid[] IS NULL OR tenant = ANY($5))) AS measured GROUP BY 1, 2
"""  # noqa: S608 -- the same text as in rollups
_RATE = """
SELECT count(*) FROM history WHERE day BETWEEN $1::date AND $2::date AND ggrid >= $3 AND ggrid < $4
    AND ($5::uuid[] IS NULL OR tenant = ANY($5))
"""


Counted = tuple[datetime, str, int]  # the bucket, what is counted, how many messages


class Range(StrEnum):
    """How far back a dashboard looks."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"


# How long each is, and the buckets that its chart has.
_LENGTHS = {
    Range.HOUR: (timedelta(hours=1), BUCKET),
    Range.DAY: (timedelta(hours=24), HOUR),
    Range.WEEK: (timedelta(days=7), 4 * HOUR),
}


class Bucket(Struct, frozen=True):
    """The messages that began in one stretch of time, by decision."""

    start: datetime
    decisions: Mapping[Decision, int]

    @property
    def messages(self) -> int:
        return sum(self.decisions.values())


class Statistics(Struct, frozen=True):
    range: Range
    since: datetime
    until: datetime
    width: timedelta
    buckets: tuple[Bucket, ...]
    decisions: Mapping[Decision, int]
    verdicts: Mapping[Verdict, int]
    tags: tuple[tuple[str, int], ...]  # the most frequent first
    p50: float | None  # milliseconds
    p95: float | None
    per_second: float  # now

    @property
    def messages(self) -> int:
        return sum(self.decisions.values())


class StatisticsStore(Protocol):
    """Tells a scope about its own messages alone."""

    async def read(self, scope: Scope, range_: Range) -> Statistics:
        """Return what is known of the range up to now, at most a few seconds old."""


class PostgresqlStatisticsStore:
    """Reads the rollups, and of the rows themselves only what is not yet counted."""

    def __init__(self, database: Database, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._database = database
        self._fresh_seconds = fresh_seconds
        self._remembered: dict[tuple[Scope, Range], tuple[float, Statistics]] = {}
        self._turn = asyncio.Lock()

    async def read(self, scope: Scope, range_: Range) -> Statistics:
        async with self._turn:  # of many who look at once, one asks the database
            known = self._remembered.get((scope, range_))
            if known is not None and time.monotonic() - known[0] < self._fresh_seconds:
                return known[1]
            statistics = await self._read(scope, range_)
            while len(self._remembered) >= MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[scope, range_] = (time.monotonic(), statistics)
            return statistics

    async def _read(self, scope: Scope, range_: Range) -> Statistics:
        now = datetime.now(UTC)
        length, width = _LENGTHS[range_]
        since = floored(now - length + width, width)
        tenants = None if scope.tenants is None else sorted(scope.tenants)
        first = "SET LOCAL statement_timeout = '2s'; SET LOCAL plan_cache_mode = force_custom_plan"
        async with (
            self._database.connection() as connection,
            scoped(connection, EVERYTHING, snapshot=True, first=first),
        ):
            try:
                counts = await _counts(connection, tenants, since, now, hourly=range_ is not Range.HOUR)
                lately = await connection.fetchval(_RATE, *range_values(now - NOW, now), tenants)
            except asyncpg.QueryCanceledError:
                raise SearchTooBroad("Counting these messages takes too long.") from None
        return _statistics(range_, since, now, counts, cast("int", lately) / NOW.total_seconds())


async def _counts(
    connection: Connection, tenants: Sequence[UUID] | None, since: datetime, now: datetime, *, hourly: bool
) -> Iterator[Counted]:
    """Return what is counted already, and the newest rows counted just now."""
    known = await rolled_to(connection)
    begin = max(known, since) if known is not None else since
    whose = [EVERYBODY] if tenants is None else [tenant for tenant in tenants if tenant != EVERYBODY]
    counted = await connection.fetch(_COUNTED, whose, hourly, since, begin)
    uncounted = await connection.fetch(_UNCOUNTED, *range_values(begin, now), tenants)
    return chain(
        (
            (cast("datetime", row["bucket"]), measure, messages)
            for row in counted
            for measure, messages in msgspec.json.decode(str(row["counts"]), type=dict[str, int]).items()
        ),
        ((cast("datetime", row["bucket"]), str(row["measure"]), cast("int", row["messages"])) for row in uncounted),
    )


def _statistics(range_: Range, since: datetime, now: datetime, counts: Iterable[Counted], rate: float) -> Statistics:
    width = _LENGTHS[range_][1]
    totals: Counter[str] = Counter()
    starts = [since + number * width for number in range(int((now - since) / width) + 1)]
    decisions: dict[datetime, Counter[Decision]] = {start: Counter() for start in starts}
    for bucket, measure, messages in counts:
        totals[measure] += messages
        if measure.startswith("decision:"):
            start = floored(bucket, width)
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
        p50=percentile(durations, 0.5),
        p95=percentile(durations, 0.95),
        per_second=rate,
    )
