"""Two tenants with a database and an SMTP server of their own."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiosmtpd.smtp import SMTP

from tests.integration.weekly_report.report_setup import ALL, ReportSetup, ReportSink


@pytest.fixture
def sink() -> ReportSink:
    return ReportSink()


@pytest.fixture
async def setup(database_url: str, sink: ReportSink) -> AsyncIterator[ReportSetup]:
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(sink), "127.0.0.1", 0)
    setup = ReportSetup(database_url, server.sockets[0].getsockname()[1])
    setup.north = (await setup.tenants.create(ALL, "North", ["north.example"])).uid
    setup.south = (await setup.tenants.create(ALL, "South", ["south.example"])).uid
    await setup.directory.refresh()
    yield setup
    setup.hop.close()
    server.close()
    await server.wait_closed()
    await setup.database.close()
