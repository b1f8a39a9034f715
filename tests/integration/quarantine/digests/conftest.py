"""Two tenants that want digests, with a database and an SMTP server of their own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiosmtpd.smtp import SMTP

from tests.integration.quarantine.digests.digest_setup import ALL, DigestSetup, DigestSink


@pytest.fixture
def digest_sink() -> DigestSink:
    return DigestSink()


@pytest.fixture
async def setup(database_url: str, tmp_path: Path, digest_sink: DigestSink) -> AsyncIterator[DigestSetup]:
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(digest_sink), "127.0.0.1", 0)
    setup = DigestSetup(database_url, tmp_path, server.sockets[0].getsockname()[1])
    setup.north = (await setup.tenants.create(ALL, "North", ["north.example"], quarantine_digest=True)).uid
    setup.south = (await setup.tenants.create(ALL, "South", ["south.example"], quarantine_digest=True)).uid
    await setup.directory.refresh()
    yield setup
    setup.hop.close()
    server.close()
    await server.wait_closed()
    await setup.database.close()
