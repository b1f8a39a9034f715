"""Two tenants that want digests, with a database and an SMTP server of their own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiosmtpd.smtp import SMTP

from tests.integration.digests.house import ALL, House, Post


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
async def house(database_url: str, tmp_path: Path, post: Post) -> AsyncIterator[House]:
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(post), "127.0.0.1", 0)
    house = House(database_url, tmp_path, server.sockets[0].getsockname()[1])
    house.north = (await house.tenants.create(ALL, "North", ["north.example"], quarantine_digest=True)).uid
    house.south = (await house.tenants.create(ALL, "South", ["south.example"], quarantine_digest=True)).uid
    await house.directory.refresh()
    yield house
    house.hop.close()
    server.close()
    await server.wait_closed()
    await house.database.close()
