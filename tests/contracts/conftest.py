"""Opens every history store for the contract tests; another implementation is one more parameter."""

from collections.abc import Callable

import pytest

from mailwarden.database.pool import Database
from mailwarden.history import open_history
from mailwarden.history.postgresql import store as postgresql
from mailwarden.history.store import HistoryStore, SenderStore

OpenStore = Callable[[], HistoryStore]


@pytest.fixture(params=["postgresql"])
def open_store(database: Database, monkeypatch: pytest.MonkeyPatch) -> OpenStore:
    """Open a store over the same data with each call."""
    monkeypatch.setattr(postgresql, "SEARCH_SECONDS", 60.0)  # a busy machine must not end a search
    return lambda: open_history(database)


@pytest.fixture
def store(open_store: OpenStore) -> HistoryStore:
    return open_store()


@pytest.fixture
def senders(store: HistoryStore) -> SenderStore:
    return store.senders
