"""A list_service with lists on it, in a database of its own, and two tenants."""

import pytest

from mailwarden.access.tenants import TenantStore
from mailwarden.database.pool import Database
from mailwarden.lists.change_log import ChangeStore, UndoStore
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.service import Lists, ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Scope


@pytest.fixture
def store(database: Database) -> ListStore:
    return ListStore(database, database)


@pytest.fixture
def lists(store: ListStore) -> Lists:
    return Lists(store)


@pytest.fixture
def list_service(database: Database, store: ListStore) -> ListService:
    return ListService(store, EntryStore(database), ChangeStore(database), UndoStore(database))


@pytest.fixture
async def acme(database: Database) -> ListScope:
    return ListScope((await TenantStore(database).create(Scope.deployment(), "acme")).uid)


@pytest.fixture
async def other(database: Database) -> ListScope:
    return ListScope((await TenantStore(database).create(Scope.deployment(), "other")).uid)
