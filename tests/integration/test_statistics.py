"""What the dashboard is told, counted from history in a real PostgreSQL."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from mailwarden.database.pool import Database
from mailwarden.history.durations import class_of, percentile
from mailwarden.history.postgresql import PostgresqlHistoryStore
from mailwarden.history.rollups import Rollups
from mailwarden.history.statistics import PostgresqlStatisticsStore, Range, Statistics
from mailwarden.model.ggrid import first_ggrid, new_ggrid
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from tests.samples.finished import finished_request

ALL = Scope.deployment()
ACME, OTHER = uuid4(), uuid4()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


def message(
    age: timedelta, tenant: UUID = ACME, decision: Decision = Decision.DELIVER, milliseconds: float = 40
) -> FinishedRequest:
    created = datetime.now(UTC) - age
    ggrid = UUID(int=first_ggrid(created).int | (new_ggrid().int & ((1 << 62) - 1)))
    base = finished_request(tenant=tenant, ggrid=ggrid, created=created)
    return msgspec.structs.replace(
        base,
        completed=created + timedelta(milliseconds=milliseconds),
        ruling=msgspec.structs.replace(base.ruling, decision=decision),
    )


async def read(database: Database, scope: Scope, range_: Range = Range.DAY) -> Statistics:
    return await PostgresqlStatisticsStore(database).read(scope, range_)


async def test_messages_are_told_by_decision_verdict_and_tag_before_and_after_they_are_counted(
    database: Database,
) -> None:
    requests = [message(timedelta(hours=hours)) for hours in range(1, 7)]
    requests += [message(timedelta(minutes=3), decision=Decision.QUARANTINE) for _ in range(4)]
    await PostgresqlHistoryStore(database).save(ALL, requests)
    told = []
    for _ in range(3):
        statistics = await read(database, ALL)
        told.append((statistics.decisions, statistics.verdicts, statistics.tags))
        assert statistics.messages == 10
        assert sum(bucket.messages for bucket in statistics.buckets) == 10
        await Rollups(database).roll()
    assert told[0] == told[1] == told[2]
    assert told[0][0][Decision.DELIVER] == 6
    assert told[0][0][Decision.QUARANTINE] == 4
    assert told[0][1][Verdict.PHISHING] == 10
    assert ("url.mismatch", 10) in told[0][2]


@pytest.mark.parametrize("late", [timedelta(minutes=9), timedelta(hours=3), timedelta(hours=20)])
async def test_a_row_that_comes_late_is_counted_once(database: Database, late: timedelta) -> None:
    store = PostgresqlHistoryStore(database)
    await store.save(ALL, [message(timedelta(minutes=8))])
    await Rollups(database).roll()
    await store.save(ALL, [message(late)])
    await Rollups(database).roll()
    assert (await read(database, ALL)).messages == 2
    await Rollups(database).roll()
    assert (await read(database, ALL)).messages == 2


async def test_a_scope_is_told_of_its_own_messages_alone(database: Database) -> None:
    requests = [message(timedelta(hours=2), tenant) for tenant in (ACME, ACME, OTHER)]
    await PostgresqlHistoryStore(database).save(ALL, [*requests, message(timedelta(seconds=5), OTHER)])
    for _ in range(2):
        assert (await read(database, Scope.of(ACME))).messages == 2
        assert (await read(database, Scope.of(OTHER))).messages == 2
        assert (await read(database, Scope.of(ACME, OTHER))).messages == 4
        assert (await read(database, Scope.of(uuid4()))).messages == 0
        assert (await read(database, Scope.of())).messages == 0
        assert (await read(database, Scope.of(UUID(int=0)))).messages == 0
        await Rollups(database).roll()


async def test_ranges_leave_out_what_is_older(database: Database) -> None:
    ages = (timedelta(minutes=20), timedelta(hours=5), timedelta(days=1, hours=12))
    await PostgresqlHistoryStore(database).save(ALL, [message(age) for age in ages])
    for _ in range(2):
        assert [(await read(database, ALL, range_)).messages for range_ in Range] == [1, 2, 3]
        await Rollups(database).roll()


async def test_the_rate_is_that_of_the_last_minute_and_durations_are_near(database: Database) -> None:
    fast = [message(timedelta(seconds=10), milliseconds=20) for _ in range(90)]
    slow = [message(timedelta(seconds=20), milliseconds=1_000) for _ in range(30)]
    await PostgresqlHistoryStore(database).save(ALL, [*fast, *slow])
    statistics = await read(database, ALL, Range.HOUR)
    assert statistics.per_second == 2
    assert statistics.p50 == pytest.approx(20, rel=0.1)
    assert statistics.p95 == pytest.approx(1_000, rel=0.1)


async def test_what_was_told_is_told_again_for_a_moment(database: Database) -> None:
    store = PostgresqlStatisticsStore(database)
    first = await store.read(ALL, Range.DAY)
    await PostgresqlHistoryStore(database).save(ALL, [message(timedelta(seconds=1))])
    assert await store.read(ALL, Range.DAY) is first
    assert (await store.read(Scope.of(ACME), Range.DAY)).messages == 1


async def test_an_empty_history_is_told_as_nothing(database: Database) -> None:
    await Rollups(database).roll()
    statistics = await read(database, ALL, Range.WEEK)
    assert (statistics.messages, statistics.p50, statistics.p95, statistics.tags) == (0, None, None, ())
    assert len(statistics.buckets) == 42


def test_a_class_of_duration_is_known_to_nine_percent() -> None:
    for milliseconds in (1, 7, 20, 333, 4_000, 60_000):
        assert percentile({class_of(milliseconds): 1}, 0.5) == pytest.approx(milliseconds, rel=0.09)
    assert percentile({}, 0.5) is None
