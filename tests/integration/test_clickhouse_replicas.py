"""History on two real replicas with ZooKeeper: through either replica, with one killed, no row lost or stored twice."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import uuid4

import pytest

from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.events.scanned import ScannedEvents
from mailwarden.history.clickhouse import schema
from mailwarden.history.clickhouse.client import Clickhouse, Target
from mailwarden.history.clickhouse.replicas import ReplicaWatch
from mailwarden.history.clickhouse.store import ClickhouseHistoryStore
from mailwarden.history.store import Range
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.search.query import parse_query
from tests.samples.finished import finished_request
from workshop.rig.clickhouse import ClickhousePair, start_pair
from workshop.rig.process import RigError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
]

ALL = Scope.deployment()
TENANT = uuid4()
WAIT_SECONDS = 60.0
NUMBERS = "SELECT count(), uniqExact(ggrid, tenant) FROM history"


@pytest.fixture(scope="module")
def pair() -> Iterator[ClickhousePair]:
    with start_pair() as started:
        yield started


def client_of(name: str, *addresses: str, quorum: int = 0) -> Clickhouse:
    client = Clickhouse(Target(addresses, name, user="default", replicated=True, quorum=quorum))
    client.freshness = ReplicaWatch(client)
    return client


def made(number: int) -> list[FinishedRequest]:
    return [finished_request(TENANT, subject=f"Invoice {each}") for each in range(number)]


async def wait_for(pair: ClickhousePair, name: str, number: int) -> None:
    """Wait until both replicas have exactly these rows, and each once when repeated batches are merged."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        for replica in pair.replicas:
            with contextlib.suppress(RigError):  # only the leader merges, and each may be it
                replica.execute("OPTIMIZE TABLE history FINAL", name)
        found = [replica.execute(NUMBERS, name) for replica in pair.replicas]
        if found == [f"{number}\t{number}"] * 2 or time.monotonic() > end:
            break
        await asyncio.sleep(0.2)
    assert found == [f"{number}\t{number}"] * 2


async def check_through_either(
    pair: ClickhousePair, name: str, database: Database, some: list[FinishedRequest]
) -> None:
    for replica in pair.replicas:
        client = client_of(name, replica.address)
        try:
            store = ClickhouseHistoryStore(client, database)
            for request in (some[0], some[-1]):
                assert await store.find(ALL, request.ggrid) == request
            page = await store.search(Scope.of(TENANT), parse_query("invoice"), limit=1_000)
            assert {row.request.ggrid for row in page.rows if row.request} == {request.ggrid for request in some}
            assert len(page.rows) == len(some)
        finally:
            await client.close()


async def test_rows_are_on_both_replicas_once_after_one_was_killed(
    pair: ClickhousePair, database: Database, note: Callable[[str], None]
) -> None:
    name = f"test_{uuid4().hex}"
    first, second = pair.replicas
    client = client_of(name, first.address, second.address)
    store = ClickhouseHistoryStore(client, database, ScannedEvents())
    try:
        lines = await schema.prepare(client, replicated=True)
        assert len(lines) == 2
        assert await schema.prepare(client, replicated=True) == lines
        await schema.check_table(client)
        requests = made(40)
        for _ in range(2):
            assert (await store.save(ALL, requests)).stored == 40
        await wait_for(pair, name, 40)
        await check_through_either(pair, name, database, requests)
        first.kill()
        requests += made(40)
        for batch in (requests[30:60], requests[40:], requests):
            assert (await store.save(ALL, batch)).stored == len(batch)
        assert await store.find(ALL, requests[-1].ggrid) == requests[-1]
        first.start()
        assert (await store.save(ALL, requests)).stored == 80
        await wait_for(pair, name, 80)
        second.kill()
        requests += made(20)
        assert (await store.save(ALL, requests[70:])).stored == 30
        second.start()
        await wait_for(pair, name, 100)
        await check_through_either(pair, name, database, requests)
        async with database.connection() as connection:
            events = cast(
                "int", await connection.fetchval("SELECT count(*) FROM events WHERE type = 'message.scanned'")
            )
        assert events == len(requests) == 100
        note(f"replicas: {len(requests)} rows, 2 kills, 0 lost, 0 stored twice, {events} events")
    finally:
        await client.close()


async def test_a_replica_is_rebuilt_with_the_granules_of_the_other(
    pair: ClickhousePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"test_{uuid4().hex}"
    client = client_of(name, *(replica.address for replica in pair.replicas))
    try:
        with monkeypatch.context() as earlier:
            earlier.setattr(schema, "GRANULARITY", 2048)
            await schema.prepare(client, replicated=True)
        for rebuilt in pair.replicas:
            rebuilt.execute("DROP TABLE history", name)
            await schema.prepare(client, replicated=True)
            assert "index_granularity = 2048" in rebuilt.execute("SHOW CREATE TABLE history", name)
    finally:
        await client.close()


async def test_a_quorum_is_refused_where_it_delays_deletions(pair: ClickhousePair) -> None:
    client = client_of("refused", pair.replicas[0].address, quorum=2)
    try:
        with pytest.raises(CommandError, match=r"quorum needs 23\.8 or newer"):
            await schema.prepare(client, replicated=True)
    finally:
        await client.close()
    assert "refused" not in pair.replicas[0].execute("SHOW DATABASES")


async def test_every_statement_of_the_store_runs_on_this_version(pair: ClickhousePair, database: Database) -> None:
    name = f"test_{uuid4().hex}"
    client = client_of(name, pair.replicas[0].address, pair.replicas[1].address)
    store = ClickhouseHistoryStore(client, database)
    try:
        await schema.prepare(client, replicated=True)
        requests = made(12)
        assert (await store.save(ALL, requests)).stored == 12
        since = datetime.now(UTC) - timedelta(hours=1)
        for text in (
            "invoice",
            "verdict:phishing",
            "from:sender.example",
            '"invoice 3"',
            "-invoice",
            "ip:192.0.2.0/24",
        ):
            await store.search(Scope.of(TENANT), parse_query(text))
        await store.facets(ALL, parse_query("invoice"))
        assert (await store.count(ALL, [], since)).counted == 12
        assert len(await store.candidates(ALL, [], since, 100)) == 12
        assert (await store.statistics(ALL, Range.DAY)).messages == 12
        await store.attacked(ALL, Range.DAY)
        assert (await store.vocabulary(ALL)).messages == 12
        await store.update_rollups(ALL)
        tomorrow = datetime.now(UTC).date() + timedelta(days=1)
        assert await store.delete_for_tenants(ALL, {TENANT: tomorrow}) == 12
        await wait_for(pair, name, 0)
        assert (await store.save(ALL, made(3))).stored == 3
        assert await store.delete_days(ALL, tomorrow) >= 1
        await wait_for(pair, name, 0)
    finally:
        await client.close()


async def test_replicas_without_zookeeper_are_stale_and_still_answer(pair: ClickhousePair, database: Database) -> None:
    client = client_of(f"test_{uuid4().hex}", *(replica.address for replica in pair.replicas))
    watch = client.freshness
    assert isinstance(watch, ReplicaWatch)
    store = ClickhouseHistoryStore(client, database)

    async def wait_for_fresh(number: int) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while watch.fresh != number and time.monotonic() < end:
            assert len((await store.search(Scope.of(TENANT), parse_query(""))).rows) == 5
            await asyncio.sleep(0.2)
        assert watch.fresh == number

    try:
        await schema.prepare(client, replicated=True)
        assert (await store.save(ALL, made(5))).stored == 5
        await wait_for(pair, client.target.database, 5)
        await wait_for_fresh(2)
        pair.zookeeper.kill()
        await wait_for_fresh(0)
        pair.zookeeper.start()
        await wait_for_fresh(2)
    finally:
        await client.close()
