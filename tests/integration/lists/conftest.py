"""The list service, in a database of its own, and two tenants."""

import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.pool import Database
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Scope


@pytest.fixture
def store(database: Database) -> ListStore:
    return ListStore(database, database)


@pytest.fixture
def lists(store: ListStore) -> ListService:
    return ListService(store)


@pytest.fixture
async def acme(database: Database) -> ListScope:
    return ListScope((await TenantStore(database).create(Scope.deployment(), "acme")).uid)


@pytest.fixture
async def other(database: Database) -> ListScope:
    return ListScope((await TenantStore(database).create(Scope.deployment(), "other")).uid)
