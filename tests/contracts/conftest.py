"""Opens every history store for the contract tests; another implementation is one more parameter."""

from collections.abc import AsyncIterator, Callable

import pytest

from mailwarden.database.pool import Database
from mailwarden.history import search_pages
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.store import ClickhouseHistoryStore
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore
from mailwarden.senders.model import SenderStore
from tests.contracts.clickhouse_databases import opened_history
from workshop.rig.clickhouse import EmbeddedClickhouse

OpenStore = Callable[[], HistoryStore]
STORES = ("postgresql", "clickhouse")


@pytest.fixture
async def clickhouse(clickhouse_server: EmbeddedClickhouse) -> AsyncIterator[Clickhouse]:
    """A database of its own with the table of history."""
    async with opened_history(clickhouse_server) as client:
        yield client


@pytest.fixture(params=STORES)
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_store(
    store_name: str, database: Database, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> OpenStore:
    """Open a store over the same data with each call."""
    for limit in ("SEARCH_SECONDS", "CANDIDATE_SECONDS"):  # a busy machine must not end a search
        monkeypatch.setattr(search_pages, limit, 60.0)
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
