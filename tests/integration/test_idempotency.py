"""Idempotency keys in a real PostgreSQL."""

import asyncpg
import pytest

from mailwarden.access.idempotency import PURGE_EVERY, IdempotencyStore
from mailwarden.database.pool import Database
from mailwarden.errors import IdempotencyConflict

ONE, TWO = b"1" * 32, b"2" * 32

pytestmark = pytest.mark.contract("3 Idempotency-Key")


@pytest.fixture
def store(database: Database) -> IdempotencyStore:
    return IdempotencyStore(database)


async def age(url: str, text: str) -> None:
    """Make every kept answer older."""
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE idempotency SET created = created - $1::text::interval", text)
    await connection.close()


async def count(url: str) -> int:
    connection = await asyncpg.connect(url)
    found = int(await connection.fetchval("SELECT count(*) FROM idempotency"))
    await connection.close()
    return found


async def test_another_body_is_a_conflict(store: IdempotencyStore) -> None:
    await store.remember("soar", "key", ONE, b"first")
    with pytest.raises(IdempotencyConflict):
        await store.find("soar", "key", TWO)
    with pytest.raises(IdempotencyConflict):
        await store.remember("soar", "key", TWO, b"second")


async def test_an_answer_is_kept_for_a_day_and_no_longer(store: IdempotencyStore, database_url: str) -> None:
    await store.remember("soar", "key", ONE, b"first")
    await age(database_url, "23 hours 59 minutes")
    assert await store.find("soar", "key", ONE) == b"first"
    await age(database_url, "2 minutes")
    assert await store.find("soar", "key", ONE) is None
    assert await store.remember("soar", "key", TWO, b"second") == b"second"
    assert await store.find("soar", "key", TWO) == b"second"


async def test_expired_answers_are_purged_in_batches(store: IdempotencyStore, database_url: str) -> None:
    for n in range(5):
        await store.remember("soar", f"key{n}", ONE, b"x")
    await age(database_url, "25 hours")
    await store.remember("soar", "new", ONE, b"x")
    assert [await store.purge(3), await store.purge(3), await store.purge(3)] == [3, 2, 0]
    assert await count(database_url) == 1


async def test_expired_answers_go_without_anyone_asking(store: IdempotencyStore, database_url: str) -> None:
    await store.remember("soar", "old", ONE, b"x")
    await age(database_url, "25 hours")
    for n in range(PURGE_EVERY):
        await store.remember("soar", f"key{n}", ONE, b"x")
    assert await count(database_url) == PURGE_EVERY


async def test_the_key_itself_is_not_kept(store: IdempotencyStore, database_url: str) -> None:
    await store.remember("soar", "very-secret-key", ONE, b"x")
    connection = await asyncpg.connect(database_url)
    row = await connection.fetchrow("SELECT * FROM idempotency")
    await connection.close()
    assert b"very-secret-key" not in b"".join(value for value in row.values() if isinstance(value, bytes))
    assert "very-secret-key" not in row.values()
