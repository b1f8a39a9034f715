"""Concurrent requests for one held message: a background job never overrides the request of a user."""

import asyncio

import pytest

from mailwarden.quarantine import retention_store
from mailwarden.quarantine.model import State
from mailwarden.quarantine.retention_store import RetentionStore
from tests.integration.quarantine.quarantine_setup import ALL, ANN, QuarantineSetup
from tests.waiting import eventually

_WAITS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted"


async def test_a_release_that_is_asked_for_while_messages_expire_is_kept(
    setup: QuarantineSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, other = await setup.keep(), await setup.keep()
    halted = retention_store._EXPIRING.replace("WHERE", "WHERE pg_advisory_xact_lock_shared(42) IS NOT NULL AND", 1)
    monkeypatch.setattr(retention_store, "_EXPIRING", halted)
    async with setup.database.connection() as connection:
        await connection.execute("UPDATE quarantine SET expires = now() - interval '1 second'")
        await connection.execute("SELECT pg_advisory_lock(42)")
        expiring = asyncio.create_task(RetentionStore(setup.database).expire(ALL))
        await eventually(lambda: connection.fetchval(_WAITS))
        await setup.store.request_release(ALL, asked, None, ANN)
        await connection.execute("SELECT pg_advisory_unlock(42)")
        assert await expiring == 1
        assert await connection.fetchval("SELECT count(*) FROM quarantine WHERE uid = $1", other) == 0
    assert (await setup.store.find(ALL, asked)).in_state(State.RELEASING)
