"""A quarantine of two tenants, with its own database and folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailwarden.access.tenants import TenantStore
from mailwarden.database.pool import Database
from tests.integration.quarantine.quarantine_setup import ALL, QuarantineSetup


@pytest.fixture
async def setup(database_url: str, tmp_path: Path) -> AsyncIterator[QuarantineSetup]:
    database = Database(database_url)
    tenants = [(await TenantStore(database).create(ALL, name)).uid for name in ("North", "South")]
    yield QuarantineSetup(database, tmp_path, tenants)
    await database.close()
