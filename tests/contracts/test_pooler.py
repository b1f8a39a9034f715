"""What the users of the database promise, also through PgBouncer in transaction mode with few connections."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.migrations import known_migrations, migrate, pending
from mailwarden.database.pool import Database, scoped
from mailwarden.events.reader import EventReader, Filter
from mailwarden.history import search_pages
from mailwarden.history.opening import open_history
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.kinds import Entry
from mailwarden.lists.service import stamp_of
from mailwarden.lists.store import Changes, ListScope, ListStore
from mailwarden.model.scope import Actor, Scope
from tests.samples.finished import finished_request
from workshop.rig.engines import Engines
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.pgbouncer import SERVER_CONNECTIONS, Pgbouncer

ALL = Scope.deployment()
GLOBAL = ListScope()
URLS = find_list("url-block")
CALLERS = 12


@pytest.fixture(scope="module")
def pgbouncer(engines: Engines) -> Iterator[Pgbouncer]:
    folder = temporary_folder()
    server = Pgbouncer(folder / "pgbouncer", engines.postgresql.port)
    server.start()
    yield server
    server.stop()
    remove_folder(folder)


@pytest.fixture
def pooled_url(pgbouncer: Pgbouncer, database_url: str) -> str:
    return pgbouncer.url(database_url.rpartition("/")[2])


@pytest.fixture
async def pooled(pooled_url: str) -> AsyncIterator[Database]:
    """Return a pool with more connections than PgBouncer has to the server."""
    database = Database(pooled_url, CALLERS, pooled=True)
    yield database
    await database.close()


async def test_lists_are_written_and_streamed_by_many_at_once(pooled: Database):
    lists = ListStore(pooled, pooled)

    async def write(number: int) -> None:
        entries = [Entry(f"u{number:02}x{index}.example") for index in range(50)]
        changes = Changes(entries, ['""'] * 50, [None] * 50)
        await lists.add(GLOBAL, URLS, changes, stamp_of(Actor("test")))
        assert await lists.delete(GLOBAL, URLS, entries[:10], stamp_of(Actor("test"))) == 10

    await asyncio.gather(*(write(number) for number in range(CALLERS)))
    lines: list[bytes] = []

    async def keep(piece: bytes) -> None:
        lines.append(piece)

    async with lists.reading(GLOBAL, URLS) as reading:
        assert reading.count == CALLERS * 40
        await reading.copy_to(keep)
    assert b"".join(lines).count(b"\n") == CALLERS * 40


async def test_history_is_written_searched_and_counted(pooled: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search_pages, "SEARCH_SECONDS", 60.0)  # a busy machine must not end a search
    requests = [finished_request() for _ in range(CALLERS)]  # as many as the pool lends connections
    store = open_history(pooled)
    await asyncio.gather(*(store.save(ALL, [request]) for request in requests))
    for request in requests:
        assert await store.find(ALL, request.ggrid) == request
    ended = await asyncio.gather(*(store.update_rollups(ALL) for _ in range(4)))
    assert any(ended)


async def test_tenants_and_events_are_read_by_many_at_once(pooled: Database):
    store = TenantStore(pooled)
    names = [f"t{number}" for number in range(CALLERS)]
    await asyncio.gather(*(store.create(ALL, name, [f"{name}.example"]) for name in names))
    found = await asyncio.gather(*(store.list(ALL) for _ in range(CALLERS)))
    assert all({tenant.name for tenant in each} >= set(names) for each in found)
    lists = ListStore(pooled, pooled)
    await lists.add(GLOBAL, URLS, Changes([Entry("one.example")], ['""'], [None]), stamp_of(Actor("test")))
    page = await EventReader(pooled).read_after(Filter(ALL, deployment=True), None)
    assert [event.type for event in page.events][-1] == "list.changed"


async def test_migrations_are_applied_once_by_many_at_once(pooled_url: str, database_url: str):
    connection = await asyncpg.connect(database_url)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await connection.close()
    applied = await asyncio.gather(*(migrate(pooled_url) for _ in range(3)))
    assert sorted(name for names in applied for name in names) == [each.name for each in known_migrations()]
    assert await pending(pooled_url) == []


async def test_a_scope_never_outlives_its_transaction(pooled: Database):
    async def scope_of_another() -> str:
        async with pooled.connection() as connection:
            return str(await connection.fetchval("SELECT coalesce(current_setting('mailwarden.scope', true), '')"))

    async def in_scope() -> None:
        async with pooled.connection() as connection, scoped(connection, str(uuid4())):
            await connection.fetchval("SELECT pg_sleep(0.01)")

    work = [in_scope() if number % 2 else scope_of_another() for number in range(CALLERS * 4)]
    assert set(await asyncio.gather(*work)) == {None, ""}


async def test_the_shipped_settings_reach_each_session_of_the_server(pooled: Database):
    async def setting(name: str) -> str:
        async with pooled.connection() as connection, connection.transaction():
            await connection.fetchval("SELECT pg_sleep(0.02)")
            return str(await connection.fetchval("SELECT current_setting($1)", name))

    timeouts = await asyncio.gather(*(setting("idle_in_transaction_session_timeout") for _ in range(CALLERS)))
    assert set(timeouts) == {"1min"}
    assert await setting("jit") == "off"


async def test_a_cancelled_caller_leaves_no_transaction_behind(pooled: Database):
    async def slow() -> None:
        async with pooled.connection() as connection:
            await connection.fetchval("SELECT pg_sleep(60)")

    for _ in range(SERVER_CONNECTIONS * 2):
        running = asyncio.create_task(slow())
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    async with asyncio.timeout(40), pooled.connection() as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_restarted_pooler_costs_one_failure_at_most(pooled: Database, pgbouncer: Pgbouncer):
    async with pooled.connection() as connection:
        await connection.fetchval("SELECT 1")
    await asyncio.to_thread(pgbouncer.restart)
    await pooled.probe()
    assert await pooled.probe()


@pytest.mark.parametrize("path", sorted(Path("deploy/ha").glob("*.ini")), ids=str)
def test_the_shipped_pooler_lends_per_transaction(path: Path):
    assert "pool_mode = transaction" in path.read_text("utf-8")
