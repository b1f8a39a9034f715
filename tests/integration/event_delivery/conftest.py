"""An outbox with its own database, and servers that end with the test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from mailwarden.database.pool import Database
from tests.integration.event_delivery.webhook_servers import Outbox, WebhookServer, open_outbox


@pytest.fixture
async def outbox(database: Database, tmp_path: Path) -> AsyncIterator[Outbox]:
    async with open_outbox(database, tmp_path) as opened:
        yield opened


@pytest.fixture
async def new_server() -> AsyncIterator[Callable[[], Awaitable[WebhookServer]]]:
    made: list[WebhookServer] = []

    async def make() -> WebhookServer:
        server = WebhookServer()
        await server.start()
        made.append(server)
        return server

    yield make
    for server in made:
        await server.stop()


@pytest.fixture
async def server(new_server: Callable[[], Awaitable[WebhookServer]]) -> WebhookServer:
    return await new_server()
