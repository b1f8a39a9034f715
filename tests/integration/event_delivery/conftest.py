"""An outbox with its own database, and receivers that end with the test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from mailwarden.database.pool import Database
from tests.integration.event_delivery.receivers import Outbox, Receiver, open_outbox


@pytest.fixture
async def outbox(database: Database, tmp_path: Path) -> AsyncIterator[Outbox]:
    async with open_outbox(database, tmp_path) as opened:
        yield opened


@pytest.fixture
async def new_receiver() -> AsyncIterator[Callable[[], Awaitable[Receiver]]]:
    made: list[Receiver] = []

    async def make() -> Receiver:
        receiver = Receiver()
        await receiver.start()
        made.append(receiver)
        return receiver

    yield make
    for receiver in made:
        await receiver.stop()


@pytest.fixture
async def receiver(new_receiver: Callable[[], Awaitable[Receiver]]) -> Receiver:
    return await new_receiver()
