"""Replicas of ClickHouse that lag: reads avoid them, and what they answer is never called complete."""

import asyncio
from collections.abc import AsyncIterator, Callable, Set
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from uuid import uuid4

import aiohttp
import pytest

from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable
from mailwarden.history import search_pages
from mailwarden.history.clickhouse import replicas
from mailwarden.history.clickhouse.binary import encode_uint64, uuid_literal
from mailwarden.history.clickhouse.client import Clickhouse, Target
from mailwarden.history.clickhouse.schema import prepare, replica_state
from mailwarden.history.clickhouse.store import ClickhouseHistoryStore
from mailwarden.history.store import Order
from mailwarden.model.ggrid import first_ggrid
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.search.count import Count
from mailwarden.search.query import parse_query
from tests.contracts.test_clickhouse import insert
from tests.samples.finished import finished_request
from workshop.rig.clickhouse import EmbeddedClickhouse

ALL = Scope.deployment()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that a busy machine does not end."""
    monkeypatch.setattr(search_pages, "SEARCH_SECONDS", 60_000.0)


async def test_a_replica_that_lags_or_is_read_only_is_reported(
    clickhouse: Clickhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    (url,) = clickhouse.target.urls
    assert not await replica_state(clickhouse, url), "a table that is not replicated is never behind"
    for answer, words in ((b"\x01" + bytes(8), "read-only"), (b"\x00" + encode_uint64(90), "90 s"), (bytes(9), "")):

        async def answered(url: str, statement: str, *, database: str, answer: bytes = answer) -> bytes:
            return answer

        monkeypatch.setattr(clickhouse, "execute_on", answered)
        found = await replica_state(clickhouse, url)
        assert words in found
        assert bool(words) == bool(found)


class Replicas:
    """Two replicas: the state that each reports, and which of them was read."""

    def __init__(self, client: Clickhouse, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states = dict.fromkeys(client.target.urls, (0, 0))
        self.read: list[str] = []
        self.asked = 0
        monkeypatch.setattr(client, "execute_on", self._state)
        monkeypatch.setattr(client, "_post", self._post)

    async def _state(self, url: str, statement: str, *, database: str | None = None) -> bytes:
        self.asked += 1
        await asyncio.sleep(0.001)
        readonly, delay = self.states[url]
        return bytes((readonly,)) + encode_uint64(delay)

    async def _post(self, url: str, parameters: dict[str, str], body: bytes) -> bytes:
        self.read.append(url)
        return b""


async def test_reads_avoid_replicas_that_lag_or_are_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "ASK_SECONDS", 0.0)
    first, second = "http://one.example/", "http://two.example/"
    client = Clickhouse(Target((first, second), replicated=True))
    watch = client.freshness = replicas.ReplicaWatch(client)
    servers = Replicas(client, monkeypatch)
    try:
        for states, expected, fresh in (
            (((0, 0), (0, 0)), first, 2),
            (((0, 11), (0, 0)), second, 1),
            (((0, 10), (1, 0)), first, 1),
            (((0, 11), (0, 11)), first, 0),  # none is fresh: any answers
            (((1, 0), (0, 0)), second, 1),
        ):
            servers.states = dict(zip((first, second), states, strict=True))
            for _ in range(2):  # the question is asked in the background
                await client.read("SELECT 1")
                await asyncio.sleep(0.01)
            await client.read("SELECT 1")
            assert (servers.read[-1], watch.fresh) == (expected, fresh)
    finally:
        await client.close()


async def test_old_knowledge_about_replicas_is_renewed_before_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "ASK_SECONDS", 0.1)
    first, second = "http://one.example/", "http://two.example/"
    client = Clickhouse(Target((first, second), replicated=True))
    client.freshness = replicas.ReplicaWatch(client)
    servers = Replicas(client, monkeypatch)
    try:
        await client.read("SELECT 1")
        assert servers.read == [first]
        await asyncio.sleep(0.3)  # no search for a while
        servers.states[first] = (0, 3_600)
        asked = servers.asked
        await asyncio.gather(*(client.read("SELECT 1") for _ in range(5)))
        assert servers.read[1:] == [second] * 5
        assert servers.asked - asked == 2, "all wait for the same question"
    finally:
        await client.close()


class Known:
    """Knows which replicas are stale."""

    def __init__(self, addresses: set[str]) -> None:
        self.addresses = addresses

    async def stale(self) -> Set[str]:
        return self.addresses

    async def close(self) -> None: ...


class LaggingPair:
    """Two replicas of which the second lacks rows; `after_keys` runs when keys were read."""

    ALL, SOME = "http://all.example/", "http://some.example/"

    def __init__(self, server: EmbeddedClickhouse, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = Clickhouse(Target((self.ALL, self.SOME), replicated=True))
        self.databases = {url: Clickhouse(Target((server.address,), f"test_{uuid4().hex}")) for url in self.urls}
        self.down: set[str] = set()
        self.after_keys: Callable[[], object] = lambda: None
        monkeypatch.setattr(self.client, "_post", self._post)

    @property
    def urls(self) -> tuple[str, ...]:
        return self.client.target.urls

    async def store(self, *requests: FinishedRequest, lacks: FinishedRequest) -> None:
        for url, client in self.databases.items():
            await prepare(client, replicated=False)
            await insert(client, *(each for each in requests if url == self.ALL or each != lacks))

    async def delete(self, request: FinishedRequest) -> None:
        for client in self.databases.values():
            await client.execute(f"ALTER TABLE history DELETE WHERE ggrid = {uuid_literal(request.ggrid)}")

    async def _post(self, url: str, parameters: dict[str, str], body: bytes) -> bytes:
        if url in self.down:
            raise aiohttp.ClientConnectionError("down")
        real = self.databases[url]
        answer = await real._post(real.target.urls[0], parameters | {"database": real.target.database}, body)
        found_keys = answer and body.startswith(b"SELECT ggrid, tenant FROM")
        if found_keys and isawaitable(waits := self.after_keys()):
            await waits
        return answer

    async def close(self) -> None:
        for client in self.databases.values():
            await client.execute(f"DROP DATABASE {client.target.database}")
            await client.close()
        await self.client.close()


@pytest.fixture
async def lagging(clickhouse_server: EmbeddedClickhouse, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LaggingPair]:
    pair = LaggingPair(clickhouse_server, monkeypatch)
    yield pair
    await pair.close()


def three_requests() -> list[FinishedRequest]:
    """Return three requests of the last minutes, the newest first."""
    now = datetime.now(UTC)
    return [finished_request(ggrid=first_ggrid(now - timedelta(minutes=each))) for each in range(3)]


@pytest.mark.usefixtures("patient")
async def test_a_search_stays_at_one_replica(lagging: LaggingPair, database: Database) -> None:
    requests = three_requests()
    await lagging.store(*requests, lacks=requests[1])
    lagging.client.freshness = known = Known(set())
    lagging.after_keys = lambda: known.addresses.add(lagging.ALL)  # it did not answer the last question in time
    page = await ClickhouseHistoryStore(lagging.client, database).search(ALL, parse_query(""))
    assert [row.ggrid for row in page.rows] == [each.ggrid for each in requests]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("order", [Order.NEWEST, Order.OLDEST])
async def test_a_search_stops_before_a_row_that_the_next_replica_lacks(
    order: Order, lagging: LaggingPair, database: Database
) -> None:
    requests, store = three_requests(), ClickhouseHistoryStore(lagging.client, database)
    await lagging.store(*requests, lacks=requests[1])
    lagging.after_keys = lambda: lagging.down.add(lagging.ALL)
    page = await store.search(ALL, parse_query(""), order=order)
    expected = [each.ggrid for each in (requests if order is Order.NEWEST else requests[::-1])]
    assert ([row.ggrid for row in page.rows], page.complete) == (expected[:1], False)
    lagging.down, lagging.after_keys, lagging.client._preferred = set(), lambda: None, 0
    page = await store.search(ALL, parse_query(""), page.next, order=order)
    assert ([row.ggrid for row in page.rows], page.complete) == (expected[1:], True)


@pytest.mark.usefixtures("patient")
async def test_a_search_that_can_show_no_row_is_an_outage(lagging: LaggingPair, database: Database) -> None:
    requests = three_requests()
    await lagging.store(*requests, lacks=requests[0])
    lagging.after_keys = lambda: lagging.down.add(lagging.ALL)
    with pytest.raises(StorageUnavailable, match="lacks a row"):
        await ClickhouseHistoryStore(lagging.client, database).search(ALL, parse_query(""))


@pytest.mark.usefixtures("patient")
async def test_a_row_that_is_deleted_during_a_search_does_not_stop_it(lagging: LaggingPair, database: Database) -> None:
    requests, store = three_requests(), ClickhouseHistoryStore(lagging.client, database)
    await lagging.store(*requests, lacks=finished_request())

    async def delete() -> None:
        await lagging.delete(requests[1])

    lagging.after_keys = delete
    page = await store.search(ALL, parse_query(""))
    assert page.complete
    assert requests[2].ggrid in {row.ggrid for row in page.rows}


@pytest.mark.usefixtures("patient")
async def test_what_a_stale_replica_answers_is_not_called_complete(lagging: LaggingPair, database: Database) -> None:
    requests, store = three_requests(), ClickhouseHistoryStore(lagging.client, database)
    await lagging.store(*requests, lacks=requests[0])
    since = requests[-1].created - timedelta(hours=1)
    lagging.client.freshness = known = Known({lagging.SOME})
    assert (await store.count(ALL, [], since)) == Count(3, exact=True, estimate=3)
    assert (await store.search(ALL, parse_query(""))).complete
    lagging.down.add(lagging.ALL)
    assert (await store.count(ALL, [], since)) == Count(2, exact=False, estimate=2)
    page = await store.search(ALL, parse_query(""))
    assert (len(page.rows), page.complete, page.next) == (2, False, None), "there is nothing to continue with"
    assert not (await store.facets(ALL, parse_query(""))).exact
    assert not (await store.search(ALL, parse_query(""), order=Order.POINTS)).complete
    known.addresses.clear()
    assert (await store.search(ALL, parse_query(""))).complete
