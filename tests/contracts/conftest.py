"""Opens every history store for the contract tests; another implementation is one more parameter."""

from collections.abc import AsyncIterator, Callable

import pytest

from mailwarden.database.pool import Database
from mailwarden.history import open_history
from mailwarden.history.postgresql import store as postgresql
from mailwarden.history.store import HistoryStore, SenderStore

OpenStore = Callable[[], HistoryStore]


@pytest.fixture(params=["postgresql"])
async def open_store(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenStore]:
    """Open a store over the same data with each call."""
    monkeypatch.setattr(postgresql, "SEARCH_SECONDS", 60.0)  # a busy machine must not end a search
    database = Database(database_url)
    yield lambda: open_history(database)
    await database.close()


@pytest.fixture
def store(open_store: OpenStore) -> HistoryStore:
    return open_store()


@pytest.fixture
def senders(store: HistoryStore) -> SenderStore:
    return store.senders
