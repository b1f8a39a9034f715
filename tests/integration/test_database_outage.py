"""PostgreSQL killed, frozen and started again under our feet: nothing acknowledged is lost, and all is well in time."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from mailwarden.access.tenants import TenantDirectory, TenantStore
from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable
from mailwarden.history import open_history
from mailwarden.history.writer import HistoryWriter
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import AssignedBy
from mailwarden.telemetry.metrics import Metrics
from rig.engines import Engines
from tests.samples.finished import finished_request
from tests.waiting import eventually

RECOVERY = 10.0
ALL = Scope.deployment()

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def running_again(engines: Engines) -> Iterator[None]:
    engines.postgresql.set_fsync(on=True)
    yield
    if not engines.postgresql.running:
        engines.postgresql.start()
    engines.postgresql.set_fsync(on=False)


async def test_history_written_during_an_outage_arrives_after_it_and_nothing_is_doubled(
    database: Database, engines: Engines
) -> None:
    store = open_history(database)
    writer = HistoryWriter(store, 10_000, Metrics())
    writer.start()
    requests = [finished_request() for _ in range(300)]
    for number, request in enumerate(requests):
        writer.save(request)
        await asyncio.sleep(0.002)
        if number == 100:
            engines.postgresql.kill()
    assert writer.waiting > 100
    await asyncio.to_thread(engines.postgresql.start)
    await eventually(lambda: not writer.waiting, RECOVERY)
    await writer.stop(5)
    assert writer.dropped == 0
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM history") == len(requests)
    for request in requests[::50]:
        assert await store.find(ALL, request.ggrid) == request


async def test_a_killed_database_is_down_at_once_and_up_again_after_its_start(
    database: Database, engines: Engines
) -> None:
    directory = TenantDirectory(TenantStore(database), interval=0.1)
    await directory.start()
    engines.postgresql.kill()
    assert not await database.probe()
    assert directory.assign("a@acme.example").by is AssignedBy.DEFAULT
    await asyncio.to_thread(engines.postgresql.start)
    await eventually(database.probe, RECOVERY)
    acme = await TenantStore(database).create(ALL, "acme", ["acme.example"])
    await eventually(lambda: directory.assign("a@acme.example").tenant == acme.uid, RECOVERY)
    await directory.stop()


async def test_a_frozen_database_costs_its_callers_a_bounded_wait(database_url: str, engines: Engines) -> None:
    database = Database(database_url, command_timeout=0.5)
    assert await database.probe()
    engines.postgresql.pause()
    began = time.monotonic()
    try:
        with pytest.raises(StorageUnavailable):
            async with database.connection(0.5) as connection:
                await connection.execute("SELECT 1 FROM tenants")
        with pytest.raises(StorageUnavailable):
            async with database.connection(0.5) as connection:
                await connection.execute("SELECT 1 FROM tenants")
        assert time.monotonic() - began < 10
    finally:
        engines.postgresql.resume()
    assert await database.probe()
    await database.close()
