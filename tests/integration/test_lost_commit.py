"""Connections that are cut around a COMMIT: a list change is applied once, a held message is known to be in doubt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable
from mailwarden.lists import store as list_store
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.kinds import Entry
from mailwarden.lists.service import stamp_of
from mailwarden.lists.store import Changes, ListScope, ListStore
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.store import QuarantineStore
from tests.integration.held_messages import finished

GLOBAL = ListScope()
URLS = find_list("url-block")
ENTRIES = [Entry(f"u{number:02}.example") for number in range(20)]


class CuttingProxy:
    """Forwards to PostgreSQL; cuts every connection at a text in what the client sends, `cuts` times."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.text = b""
        self.cuts = 0
        self.forwards = False  # whether the server gets the text first, and answers
        self.then_refuses = False  # new connections, after a cut
        self._refuses = False
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        back = asyncio.create_task(_copy(from_server, writer))
        try:
            while data := await reader.read(65_536):
                if self.cuts and self.text in data:
                    self.cuts -= 1
                    self._refuses = self.then_refuses
                    if self.forwards:
                        back.cancel()
                        await asyncio.wait([back])
                        to_server.write(data)
                        await from_server.read(1)  # the answer, which the client does not get
                    break
                to_server.write(data)
        finally:
            back.cancel()
            writer.transport.abort()
            to_server.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
    finally:
        writer.close()


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[CuttingProxy]:
    opened = CuttingProxy(urlsplit(database_url).port or 5432)
    yield opened
    opened.stop()


@pytest.fixture
async def cut(proxy: CuttingProxy, database_url: str) -> AsyncIterator[Database]:
    """Return the database behind the proxy."""
    port = await proxy.start()
    database = Database(database_url.replace(f":{urlsplit(database_url).port}/", f":{port}/"), 2, pooled=True)
    yield database
    await database.close()


@pytest.fixture
async def lists(cut: Database) -> ListStore:
    return ListStore(cut, cut)


async def add(lists: ListStore) -> None:
    await lists.add(GLOBAL, URLS, Changes(ENTRIES, ['""'] * 20, [None] * 20), stamp_of(Actor("test")))


async def count(database: Database, table: str) -> int:
    async with database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL mailwarden.scope = 'all'")
        return int(str(await connection.fetchval(f"SELECT count(*) FROM {table}")))


@pytest.mark.parametrize("forwards", [True, False], ids=["answer lost", "commit lost"])
async def test_an_addition_is_applied_once(
    lists: ListStore, proxy: CuttingProxy, database: Database, forwards: bool
) -> None:
    await lists.delete(GLOBAL, URLS, ENTRIES, stamp_of(Actor("test")))  # the list is known
    proxy.text, proxy.cuts, proxy.forwards = b"COMMIT", 0, forwards
    await add(lists)
    assert await lists.delete(GLOBAL, URLS, ENTRIES, stamp_of(Actor("test"))) == 20
    before = await count(database, "list_changes")
    proxy.cuts = 1
    await add(lists)
    assert proxy.cuts == 0
    assert await count(database, "list_entries") == 20
    assert await count(database, "list_changes") == before + 1


@pytest.mark.parametrize("forwards", [True, False], ids=["answer lost", "commit lost"])
async def test_a_deletion_reports_what_it_deleted(
    lists: ListStore, proxy: CuttingProxy, database: Database, forwards: bool
) -> None:
    await add(lists)
    before = await count(database, "list_changes")
    proxy.text, proxy.cuts, proxy.forwards = b"COMMIT", 1, forwards
    assert await lists.delete(GLOBAL, URLS, ENTRIES, stamp_of(Actor("test"))) == 20
    assert await count(database, "list_entries") == 0
    assert await count(database, "list_changes") == before + 1


@pytest.mark.parametrize("text", [b"BEGIN", b"INSERT INTO list_entries"], ids=["begin", "insert"])
async def test_a_connection_lost_before_the_commit_is_repeated_once(
    lists: ListStore, proxy: CuttingProxy, database: Database, text: bytes
) -> None:
    await add(lists)
    proxy.text, proxy.cuts = text, 1
    await add(lists)
    assert proxy.cuts == 0
    assert await count(database, "list_changes") == 2


async def test_the_number_of_attempts_is_bounded(lists: ListStore, proxy: CuttingProxy) -> None:
    await add(lists)
    proxy.text, proxy.cuts = b"BEGIN", 1_000
    with pytest.raises(StorageUnavailable):
        await add(lists)
    assert proxy.cuts >= 1_000 - 4


async def test_a_change_in_doubt_fails_when_no_server_comes_back(
    lists: ListStore, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_store, "SETTLE_SECONDS", 1.0)
    await add(lists)
    proxy.text, proxy.cuts, proxy.forwards, proxy.then_refuses = b"COMMIT", 1, True, True
    with pytest.raises(StorageUnavailable):
        await add(lists)
    assert proxy.cuts == 0


async def test_the_first_connection_after_an_outage_is_checked(proxy: CuttingProxy, lists: ListStore) -> None:
    await add(lists)
    proxy.text, proxy.cuts = b"pg_is_in_recovery", 1
    lists.database.up = False
    await add(lists)
    assert proxy.cuts == 0


@pytest.mark.parametrize(
    ("text", "in_doubt"), [(b"COMMIT", True), (b"INSERT INTO quarantine", False)], ids=["commit", "insert"]
)
async def test_a_held_message_is_in_doubt_if_its_commit_has_no_answer(
    cut: Database, proxy: CuttingProxy, database: Database, text: bytes, in_doubt: bool
) -> None:
    async def exists() -> bool:
        return True

    tenant = (await TenantStore(database).create(Scope.deployment(), "Acme")).uid
    proxy.text, proxy.cuts, proxy.forwards = text, 1, True
    with pytest.raises(StorageUnavailable) as raised:
        await QuarantineStore(cut).add(
            Scope.of(tenant),
            finished(tenant),
            uid=uuid4(),
            vault=uuid4(),
            address=b"a" * 32,
            days=RetentionDays(30),
            body_exists=exists,
        )
    assert (raised.value.in_doubt, proxy.cuts) == (in_doubt, 0)
