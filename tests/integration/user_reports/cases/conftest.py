"""The case service of two tenants over a database of its own."""

import pytest

from mailwarden.database.pool import Database
from tests.integration.user_reports.cases.case_setup import CaseSetup, open_setup


@pytest.fixture
async def setup(database: Database) -> CaseSetup:
    return await open_setup(database)
