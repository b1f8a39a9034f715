"""A house of two tenants, with a database and a folder of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailwarden.access.tenants import TenantStore
from mailwarden.database.pool import Database
from tests.integration.held.house import ALL, House


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    database = Database(database_url)
    tenants = [(await TenantStore(database).create(ALL, name)).uid for name in ("North", "South")]
    yield House(database, tmp_path, tenants)
    await database.close()
