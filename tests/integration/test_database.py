"""Connections to a real PostgreSQL, and what becomes of them when it does not answer."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import cast

import asyncpg
import pytest
import structlog

from mailwarden.database.pool import EVERYTHING, Connection, Database, scoped
from mailwarden.database.pool_metrics import DatabaseMetrics
from mailwarden.errors import StorageUnavailable
from mailwarden.telemetry.metrics import Metrics
from tests.waiting import eventually


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, pool_size=2, command_timeout=1.0)
    yield database
    await database.close()


async def test_a_database_is_up_once_it_answered(database: Database) -> None:
    assert not database.up
    assert await database.probe()
    assert database.up


async def test_metrics_show_connections_times_and_outages(database: Database) -> None:
    metrics = Metrics()
    pools = DatabaseMetrics(metrics, database)
    down = Database("postgresql://nobody@127.0.0.1:1/none")
    pools.watch("down", down)
    page = metrics.page().decode()
    assert "mailwarden_database_up 0.0" in page
    assert 'mailwarden_database_connections_limit{pool="main"} 2.0' in page
    async with database.connection() as connection:
        await connection.fetchval("SELECT pg_sleep(0.06)")
        assert 'mailwarden_database_connections_in_use{pool="main"} 1.0' in metrics.page().decode()
    assert not await down.probe()
    page = metrics.page().decode()
    assert "mailwarden_database_up 1.0" in page
    assert 'mailwarden_database_connections_in_use{pool="main"} 0.0' in page
    assert 'mailwarden_database_use_seconds_bucket{le="0.05",pool="main"} 0.0' in page
    assert 'mailwarden_database_use_seconds_count{pool="main"} 1.0' in page
    assert 'mailwarden_database_wait_seconds_count{pool="main"} 1.0' in page
    assert 'mailwarden_database_failures_total{pool="main"} 0.0' in page
    assert 'mailwarden_database_failures_total{pool="down"} 1.0' in page
    await down.close()


async def test_a_refused_connection_is_storage_unavailable_at_once() -> None:
    database = Database("postgresql://nobody@127.0.0.1:1/none")
    began = time.perf_counter()
    with pytest.raises(StorageUnavailable) as caught:
        async with database.connection():
            pass
    assert caught.value.retry_after
    assert time.perf_counter() - began < 3
    assert not await database.probe()
    await database.close()


async def test_a_silent_server_costs_the_timeout_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        database = Database(f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/none?sslmode=disable")
        began = time.perf_counter()
        with pytest.raises(StorageUnavailable):
            async with database.connection(0.2):
                pass
        assert time.perf_counter() - began < 5
        await database.close(0.5)


async def test_a_statement_that_takes_too_long_is_storage_unavailable(database: Database) -> None:
    began = time.perf_counter()
    with pytest.raises(StorageUnavailable):
        async with database.connection() as connection:
            await connection.execute("SELECT pg_sleep(30)")
    assert time.perf_counter() - began < 10
    assert await database.probe()


async def test_a_full_pool_is_storage_unavailable_after_the_wait(database: Database) -> None:
    async with database.connection(), database.connection():
        with pytest.raises(StorageUnavailable):
            async with database.connection(0.1):
                pass
    assert await database.probe()


async def test_a_connection_that_was_cut_is_replaced(database: Database, database_url: str) -> None:
    async with database.connection() as connection:
        backend = await connection.fetchval("SELECT pg_backend_pid()")
    other = await asyncpg.connect(database_url)

    async def be_cut() -> None:
        async with database.connection() as connection:
            await other.execute("SELECT pg_terminate_backend($1)", backend)
            await eventually(cast("asyncpg.Connection", connection).is_closed)
            await connection.execute("SELECT 1")

    with pytest.raises(StorageUnavailable):
        await be_cut()
    assert not database.up
    assert await database.probe()
    await other.close()


async def test_a_wrong_call_is_a_bug_and_not_an_outage(database: Database) -> None:
    with pytest.raises(asyncpg.InterfaceError):
        async with database.connection() as connection:
            await connection.fetchval("SELECT $1::int")
    assert await database.probe()


async def wait_for_sleep(observer: Connection) -> None:
    """Wait until PostgreSQL executes a statement that sleeps."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep(%'"
    await eventually(lambda: observer.fetchval(query))


async def test_a_cancelled_caller_gives_its_connection_back(database: Database, database_url: str) -> None:
    async def wait_long() -> None:
        async with database.connection() as connection:
            await connection.execute("SELECT pg_sleep(30)")

    observer = await asyncpg.connect(database_url)
    for _ in range(3):
        task = asyncio.create_task(wait_long())
        await wait_for_sleep(observer)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await observer.close()
    async with database.connection(1), database.connection(1):
        assert await asyncio.sleep(0, True)


async def test_closed_connections_answer_storage_unavailable(database: Database) -> None:
    await database.probe()
    await database.close()
    with pytest.raises(StorageUnavailable):
        async with database.connection():
            pass


async def test_a_close_keeps_its_deadline_while_a_statement_runs(database_url: str) -> None:
    database = Database(database_url, command_timeout=20)

    async def wait_long() -> None:
        async with database.connection() as connection:
            await connection.execute("SELECT pg_sleep(15)")

    observer = await asyncpg.connect(database_url)
    task = asyncio.create_task(wait_long())
    await wait_for_sleep(observer)
    await observer.close()
    began = time.perf_counter()
    await database.close(0.3)
    assert time.perf_counter() - began < 8
    with pytest.raises(StorageUnavailable):
        await task


async def test_why_the_database_does_not_answer_is_logged_once_by_a_process_and_never_by_a_command(database_url: str):
    nobody = database_url.rpartition("/")[0] + "/nosuch"
    for logs, reported in ((True, ["database_unavailable"]), (False, [])):
        database = Database(nobody, logs=logs)
        with structlog.testing.capture_logs() as lines:
            for _ in range(3):
                assert not await database.probe()
        await database.close()
        assert [line["event"] for line in lines] == reported
        assert all('database "nosuch" does not exist' in line["reason"] for line in lines)


async def test_a_table_that_is_missing_is_logged_once_and_an_answer_after_an_outage_too(database_url: str):
    database = Database(database_url, logs=True)
    with structlog.testing.capture_logs() as lines:
        assert await database.probe()
        for _ in range(3):
            with pytest.raises(StorageUnavailable, match="mailwarden database migrate"):
                async with database.connection() as connection:
                    await connection.fetch("SELECT 1 FROM table_of_tomorrow")
            assert await database.probe()
    assert [(line["event"], line["log_level"]) for line in lines] == [("database_unavailable", "warning")]

    with structlog.testing.capture_logs() as lines:
        database.up = False  # as after a connection that was refused
        assert await database.probe()
    await database.close()
    assert [line["event"] for line in lines] == ["database_available"]


async def test_a_cancelled_statement_leaves_no_transaction_to_the_next_caller(database_url: str) -> None:
    """A statement that is cancelled between its preparation and its execution has begun a transaction silently."""
    database = Database(database_url, pool_size=1)

    async def read(number: int) -> None:
        async with database.connection() as connection:
            await connection.fetchval(f"SELECT {number} FROM pg_class LIMIT 1")  # another text is prepared again

    for turn in range(400):
        task = asyncio.create_task(read(turn))
        await asyncio.sleep(turn * 0.00001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with database.connection() as connection, scoped(connection, EVERYTHING, snapshot=True):
            await connection.fetchval("SELECT 1")
    await database.close()


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN; CREATE TABLE half (number int)"])
async def test_a_transaction_left_open_is_rolled_back(database_url: str, begin: str) -> None:
    database = Database(database_url, pool_size=1)
    async with database.connection() as connection:
        await connection.execute(begin)
    async with database.connection() as connection, scoped(connection, EVERYTHING, snapshot=True):
        assert await connection.fetchval("SELECT to_regclass('half')") is None
    await database.close()


async def test_a_process_that_is_frozen_in_a_transaction_loses_its_locks(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailwarden.database.pool.IDLE_SECONDS", 0.5)
    database, other = Database(database_url, command_timeout=0.5), await asyncpg.connect(database_url)
    was_released = False

    async def freeze() -> None:
        nonlocal was_released
        async with database.connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(4711)")
            assert not await other.fetchval("SELECT pg_try_advisory_lock(4711)")
            await eventually(lambda: other.fetchval("SELECT pg_try_advisory_lock(4711)"))
            was_released = True
            await connection.execute("SELECT 1")

    with pytest.raises(StorageUnavailable):
        await freeze()
    assert was_released
    await other.close()
    await database.close()
