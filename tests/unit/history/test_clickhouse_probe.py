"""The metric of the history store is right also in a process without calls, and a probe hides no failed write."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from mailwarden.errors import StorageUnavailable
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.opening import start_clickhouse
from mailwarden.history.settings import ClickhouseSettings, HistoryStoreSettings
from mailwarden.telemetry.metrics import Metrics

IDLE = 0.05


class Store:
    """Answers as ClickHouse does; 500 to all calls, or to those that write."""

    def __init__(self) -> None:
        self.down = self.read_only = False
        self.reads = 0
        self.url = ""

    async def answer(self, request: web.BaseRequest) -> web.Response:
        writes = "query" in request.query
        self.reads += not writes
        status = 500 if self.down or (writes and self.read_only) else 200
        return web.Response(status=status, headers={"X-ClickHouse-Summary": "{}"})


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    made = Store()
    runner = web.ServerRunner(web.Server(made.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def start(store: Store, metrics: Metrics, stack: AsyncExitStack, idle_seconds: float = IDLE) -> Clickhouse:
    settings = HistoryStoreSettings(store="clickhouse", clickhouse=ClickhouseSettings(urls=[store.url]))
    found = start_clickhouse(settings, Path(), metrics, stack, idle_seconds=idle_seconds)
    assert found is not None
    return found


async def shows(metrics: Metrics, expected: float) -> bool:
    """Return whether the metric has the value within two seconds."""
    for _ in range(200):
        if metrics.registry.get_sample_value("mailwarden_history_store_up") == expected:
            return True
        await asyncio.sleep(0.01)
    return False


async def test_a_process_without_calls_knows_whether_the_store_answers(store: Store) -> None:
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        start(store, metrics, stack)
        assert await shows(metrics, 1)
        store.down = True
        assert await shows(metrics, 0)
        store.down = False
        assert await shows(metrics, 1)
    reads = store.reads
    await asyncio.sleep(3 * IDLE)
    assert store.reads == reads, "no probe after the end"


async def test_a_probe_does_not_hide_that_writes_fail(store: Store) -> None:
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        clickhouse = start(store, metrics, stack, idle_seconds=0.3)
        assert await shows(metrics, 1)
        store.read_only = True
        for _ in range(8):
            with pytest.raises(StorageUnavailable):
                await clickhouse.insert("INSERT INTO history FORMAT RowBinary", b"row")
            assert metrics.registry.get_sample_value("mailwarden_history_store_up") == 0
            await asyncio.sleep(0.1)
            assert metrics.registry.get_sample_value("mailwarden_history_store_up") == 0
        assert store.reads == 1


async def test_history_in_postgresql_has_no_metric(store: Store) -> None:
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        assert start_clickhouse(HistoryStoreSettings(), Path(), metrics, stack) is None
    assert metrics.registry.get_sample_value("mailwarden_history_store_up") is None
