"""The training services for each test."""

from collections.abc import AsyncIterator

import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.pool import Database
from mailwarden.engines.rspamd import RspamdEngine, RspamdSettings
from mailwarden.history.opening import open_history
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.store import ReportStore
from mailwarden.user_reports.training import Training
from tests.integration.user_reports.training.training_setup import ALL, SEAL, TrainingSetup, teacher_of
from workshop.rig.engines import Engines


@pytest.fixture
async def setup(engines: Engines, database: Database) -> AsyncIterator[TrainingSetup]:
    tenants = TenantStore(database)
    made = [(await tenants.create(ALL, name)).uid for name in ("North", "South")]
    report_store, history = ReportStore(database), open_history(database)
    training = Training(report_store, teacher_of(engines), SEAL, 365)
    report_service = ReportService(report_store, history, SEAL)
    rspamd = RspamdEngine("rspamd", RspamdSettings(engines.rspamd.address, max_concurrency=8))
    yield TrainingSetup(report_service, training, report_store, history, rspamd, (made[0], made[1]))
    await training.stop()
