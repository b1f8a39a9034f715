"""History in a real PostgreSQL: partitions, retention, and strings of hostile messages."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import msgspec
import pytest

from mailwarden.database.pool import Database
from mailwarden.history.maintenance import Retention
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.scope import Scope
from tests.samples.finished import finished_request

ALL = Scope.deployment()


@pytest.fixture
def store(database: Database) -> HistoryStore:
    return open_history(database)


def ggrid_of(moment: datetime) -> UUID:
    """Make an id as if the clock had said `moment`."""
    rest = int(new_ggrid()) & ((1 << 80) - 1)
    return UUID(int=(int(moment.timestamp() * 1000) << 80) | rest)


async def test_nul_and_lone_surrogates_are_cleaned_and_stop_nothing(store: HistoryStore) -> None:
    nul = finished_request(subject="a\x00b")
    surrogate = finished_request(subject="a\ud800b")
    plain = finished_request()
    assert (await store.save(ALL, [nul, surrogate, plain])).stored == 3
    found = await store.find(ALL, surrogate.ggrid)
    assert found is not None
    assert found.summary.subject == "a\ufffdb"
    assert await store.find(ALL, nul.ggrid) == nul


async def test_a_fact_that_is_no_number_can_be_read_back(store: HistoryStore) -> None:
    report = Report("rspamd", True, Status.FINISHED, 1.0, (Finding("x.y", facts={"score": float("nan"), "n": 1}),))
    request = finished_request(evidence=Evidence((report,)))
    await store.save(ALL, [request])
    found = await store.find(ALL, request.ggrid)
    assert found is not None
    assert found.evidence.reports[0].findings[0].facts == {"score": "not a number", "n": 1}


async def test_one_row_the_database_refuses_does_not_stop_the_others(store: HistoryStore) -> None:
    requests = [finished_request() for _ in range(9)]
    requests[4] = msgspec.structs.replace(requests[4], created="not a time")
    assert (await store.save(ALL, requests)).stored == 8
    assert await store.find(ALL, requests[3].ggrid) == requests[3]
    assert await store.find(ALL, requests[4].ggrid) is None


async def test_a_day_far_from_today_makes_no_partition_and_stops_nothing(
    store: HistoryStore, database_url: str
) -> None:
    now = datetime.now(UTC)
    near = [finished_request(ggrid=ggrid_of(now + timedelta(days=days))) for days in (-20, -2, -1, 0, 1, 2)]
    far = [finished_request(ggrid=ggrid_of(now + timedelta(days=days))) for days in (-400, -40, 3, 4_000)]
    saved = await store.save(ALL, [*far, *near])
    assert saved.stored == len(near)
    assert {each.request.ggrid for each in saved.rejected} == {request.ggrid for request in far}
    for request in near:
        assert await store.find(ALL, request.ggrid) == request
    for request in far:
        assert await store.find(ALL, request.ggrid) is None
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT count(*) FROM pg_inherits WHERE inhparent = 'history'::regclass") == 7
    await connection.close()


async def test_the_next_day_is_made_before_it_begins(store: HistoryStore, database_url: str) -> None:
    await store.save(ALL, [finished_request()])
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"history_{tomorrow:%Y%m%d}")
    await connection.close()


async def test_a_lookup_by_ggrid_touches_one_partition(store: HistoryStore, database_url: str) -> None:
    now = datetime.now(UTC)
    requests = [finished_request(ggrid=ggrid_of(now + timedelta(days=days))) for days in (-2, -1, 0, 1)]
    await store.save(ALL, requests)
    connection = await asyncpg.connect(database_url)
    for mode in ("force_custom_plan", "force_generic_plan"):
        await connection.execute(f"SET plan_cache_mode = {mode}")
        plan = await connection.fetch(
            "EXPLAIN (ANALYZE, COSTS OFF) SELECT record FROM history WHERE day = $1 AND ggrid = $2",
            now.date(),
            requests[2].ggrid,
        )
        text = "\n".join(row[0] for row in plan)
        assert text.count("Scan") == 1, text
        assert f"history_{now:%Y%m%d}" in text
    await connection.close()


async def test_two_guards_store_the_same_request_once(database_url: str) -> None:
    import asyncio

    databases = [Database(database_url, 1) for _ in range(4)]
    requests = [finished_request() for _ in range(200)]
    stores = [open_history(database) for database in databases]
    kept = await asyncio.gather(
        *(store.save(ALL, requests[::step]) for store, step in zip(stores, (1, -1, 1, -1), strict=True))
    )
    assert [saved.stored for saved in kept] == [200] * 4
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT count(*) FROM history") == 200
    await connection.close()
    for database in databases:
        await database.close()


async def test_a_tenant_may_have_a_shorter_retention(store: HistoryStore, database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    tenant = await connection.fetchval("INSERT INTO tenants (name, retention_days) VALUES ('brief', 1) RETURNING uid")
    await connection.execute("INSERT INTO tenants (name, retention_days) VALUES ('long', 400)")
    await connection.close()
    now = datetime.now(UTC)
    old, new = (finished_request(tenant, ggrid=ggrid_of(now - timedelta(days=days))) for days in (2, 1))
    other = finished_request(ggrid=ggrid_of(now - timedelta(days=2)))
    await store.save(ALL, [old, new, other])
    retention = Retention(store, days=90)
    assert await retention.delete_days() == 0
    assert await retention.delete_for_tenants() == 1
    assert await store.find(ALL, old.ggrid) is None
    assert await store.find(ALL, new.ggrid) == new
    assert await store.find(ALL, other.ggrid) == other
    assert await retention.delete_for_tenants() == 0
