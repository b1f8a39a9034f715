"""A quarantine of two tenants, with its own database and folder."""

from pathlib import Path

import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.pool import Database
from tests.integration.quarantine.quarantine_setup import ALL, QuarantineSetup


@pytest.fixture
async def setup(database: Database, tmp_path: Path) -> QuarantineSetup:
    tenants = [(await TenantStore(database).create(ALL, name)).uid for name in ("North", "South")]
    return QuarantineSetup(database, tmp_path, tenants)
