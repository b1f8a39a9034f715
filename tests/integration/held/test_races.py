"""Two who want something of one held message at the same moment: what a person asked for is not lost to a chore."""

import asyncio

import pytest

from mailwarden.model.actor import Actor
from mailwarden.quarantine import retention_store
from mailwarden.quarantine.held import State
from mailwarden.quarantine.retention_store import RetentionStore
from tests.integration.held.house import ALL, House

_ASLEEP = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"


async def test_a_release_that_is_asked_for_while_messages_expire_is_kept(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, other = await house.keep(), await house.keep()
    slow = retention_store._EXPIRING.replace("AND expires < now()", "AND pg_sleep(2) IS NOT NULL AND expires < now()")
    monkeypatch.setattr(retention_store, "_EXPIRING", slow)
    async with house.database.connection() as connection:
        await connection.execute("UPDATE quarantine SET expires = now() - interval '1 second'")
        expiring = asyncio.create_task(RetentionStore(house.database).expire(ALL))
        async with asyncio.timeout(60):
            while not await connection.fetchval(_ASLEEP):
                await asyncio.sleep(0.05)
    await house.store.ask_release(ALL, asked, None, Actor("user:ann"))
    assert not expiring.done(), "the release comes while it looks"
    assert await expiring == 1
    assert (await house.store.find(ALL, asked)).in_state(State.RELEASING)
    async with house.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM quarantine WHERE uid = $1", other) == 0
