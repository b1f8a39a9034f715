"""Opens every history store for the contract tests; another implementation is one more parameter."""

from collections.abc import AsyncIterator, Callable, Iterator
from uuid import uuid4

import pytest

from mailwarden.database.pool import Database
from mailwarden.history import open_history, pages
from mailwarden.history.clickhouse.client import Clickhouse, Target
from mailwarden.history.clickhouse.schema import prepare
from mailwarden.history.clickhouse.store import ClickhouseHistoryStore
from mailwarden.history.store import HistoryStore, SenderStore
from rig.clickhouse import EmbeddedClickhouse
from rig.folders import remove_folder, temporary_folder

OpenStore = Callable[[], HistoryStore]
STORES = ("postgresql", "clickhouse")


@pytest.fixture(scope="session")
def clickhouse_server() -> Iterator[EmbeddedClickhouse]:
    folder = temporary_folder()
    server = EmbeddedClickhouse(folder / "clickhouse")
    try:
        server.start()
        yield server
    finally:
        server.stop()
        remove_folder(folder)


@pytest.fixture
async def clickhouse(clickhouse_server: EmbeddedClickhouse) -> AsyncIterator[Clickhouse]:
    """A database of its own with the table of history."""
    name = f"test_{uuid4().hex}"
    client = Clickhouse(Target((clickhouse_server.address,), name))
    await prepare(client, replicated=False)
    yield client
    await client.close()
    clickhouse_server.execute(f"DROP DATABASE {name}")


@pytest.fixture(params=STORES)
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_store(
    store_name: str, database: Database, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> OpenStore:
    """Open a store over the same data with each call."""
    for limit in ("SEARCH_SECONDS", "CANDIDATE_SECONDS"):  # a busy machine must not end a search
        monkeypatch.setattr(pages, limit, 60.0)
    if store_name == "postgresql":
        return lambda: open_history(database)
    client: Clickhouse = request.getfixturevalue("clickhouse")
    return lambda: ClickhouseHistoryStore(client, database)


@pytest.fixture
def store(open_store: OpenStore) -> HistoryStore:
    return open_store()


@pytest.fixture
def senders(store: HistoryStore) -> SenderStore:
    return store.senders
