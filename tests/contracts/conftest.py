"""Every keeper of history, for the tests of what all of them promise."""

from collections.abc import AsyncIterator

import pytest

from mailwarden.database.pool import Database
from mailwarden.history import postgresql
from mailwarden.history.memory import MemoryHistoryStore
from mailwarden.history.postgresql import PostgresqlHistoryStore
from mailwarden.history.store import HistoryStore


@pytest.fixture(params=["memory", "postgresql"])
def url(request: pytest.FixtureRequest) -> str | None:
    return str(request.getfixturevalue("database_url")) if request.param == "postgresql" else None


@pytest.fixture
async def store(url: str | None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HistoryStore]:
    if url is None:
        yield MemoryHistoryStore()
        return
    monkeypatch.setattr(postgresql, "SEARCH_SECONDS", 60.0)  # a busy machine shall not end a search
    database = Database(url)
    yield PostgresqlHistoryStore(database)
    await database.close()
