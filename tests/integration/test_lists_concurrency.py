"""Many clients on one list: limits hold exactly, nobody waits in a circle, and every count adds up."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest

from mailwarden.database.pool import Database, scoped
from mailwarden.errors import ListFull
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Actor

GLOBAL = ListScope()
SOAR = Actor("key:soar")
CLIENTS = 16


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, 8)
    yield database
    await database.close()


@pytest.fixture
def lists(database: Database) -> ListService:
    return ListService(ListStore(database, database))


async def add(lists: ListService, name: str, entries: Sequence[str]) -> int:
    return await lists.add_entries(GLOBAL, name, [ListEntryInput(entry, comment="x") for entry in entries], SOAR)


async def counted(database: Database) -> tuple[object, object]:
    """Return the counter of the only list, and the number of rows."""
    async with database.connection() as connection, scoped(connection, "all"):
        counter = await connection.fetchval("SELECT entries FROM lists")
        return counter, await connection.fetchval("SELECT count(*) FROM list_entries")


async def test_max_size_is_never_passed_and_reached_exactly(lists: ListService, database: Database) -> None:
    async def fill(client: int) -> int:
        refused = 0
        for call in range(10):
            try:
                await add(lists, "attachment-block", [f".c{client}x{call}y{n}" for n in range(10)])
            except ListFull:
                refused += 1
        return refused

    refused = await asyncio.gather(*(fill(client) for client in range(CLIENTS)))

    assert await counted(database) == (1_000, 1_000)
    assert sum(refused) == CLIENTS * 10 - 100


async def test_adds_and_deletes_of_the_same_entries_add_up_without_a_deadlock(
    lists: ListService, database: Database
) -> None:
    entries = [f"n{n:03}.example" for n in range(300)]

    async def add_and_delete(client: int) -> tuple[int, int]:
        chance = random.Random(client)
        calls = deleted = 0
        for _ in range(12):
            chosen = chance.sample(entries, 120)  # in any order: sorting them is the service's work
            if chance.random() < 0.5:
                assert await add(lists, "sender-block", chosen) == 120
            else:
                deleted += await lists.delete_entries(GLOBAL, "sender-block", chosen, SOAR)
            calls += 1
        return calls, deleted

    done = await asyncio.gather(*(add_and_delete(client) for client in range(CLIENTS)))

    counter, rows = await counted(database)
    assert counter == rows
    async with database.connection() as connection:
        added = await connection.fetchval("SELECT sum((details->>'added')::int) FROM audit WHERE action = 'lists.add'")
    assert added == rows + sum(deleted for _, deleted in done)  # type: ignore[operator]
