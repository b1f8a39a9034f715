"""Lists in a real PostgreSQL: limits, audit, expiry, snapshots, and the walls between scopes."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg
import pytest

from mailwarden.access.audit import AuditStore
from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.pool import Database, scoped
from mailwarden.errors import ListFull, TenantNotFound
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.expiry import Expiry
from mailwarden.lists.requests import AddEntries
from mailwarden.lists.service import ListService, stamp_of
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Actor, Scope
from mailwarden.wire.strict_json import convert

GLOBAL = ListScope()
SOAR = Actor("key:soar", "192.0.2.7", "request-1")


@pytest.fixture
async def store(database: Database, database_url: str) -> AsyncIterator[ListStore]:
    streams = Database(database_url, 4, 60.0)
    yield ListStore(database, streams)
    await streams.close()


@pytest.fixture
def lists(store: ListStore) -> ListService:
    return ListService(store)


@pytest.fixture
async def tenant(database: Database) -> UUID:
    return (await TenantStore(database).create(Scope.deployment(), "acme")).uid


async def add(lists: ListService, scope: ListScope, name: str, *entries: object) -> int:
    given = [{"entry": entry} if isinstance(entry, str) else entry for entry in entries]
    return await lists.add_entries(scope, name, convert({"listName": name, "entries": given}, AddEntries).entries, SOAR)


async def read(lists: ListService, scope: ListScope, name: str) -> list[dict[str, object]]:
    """Return the records of a list, having checked that there are as many as were announced."""
    pieces: list[bytes] = []

    async def keep(piece: bytes) -> None:
        pieces.append(bytes(piece))

    async with lists.reading(scope, name) as reading:
        await reading.copy_to(keep)
    records = [json.loads(line) for line in b"".join(pieces).splitlines()]
    assert len(records) == reading.count
    return records


async def names(lists: ListService, scope: ListScope, name: str) -> list[object]:
    return [record["entry"] for record in await read(lists, scope, name)]


async def test_a_full_list_refuses_the_whole_call_and_updates_still_pass(lists: ListService) -> None:
    first = [f".x{n}" for n in range(500)]
    second = [f".y{n}" for n in range(499)]
    await add(lists, GLOBAL, "attachment-block", *first)
    await add(lists, GLOBAL, "attachment-block", *second)
    with pytest.raises(ListFull):
        await add(lists, GLOBAL, "attachment-block", ".z1", ".z2")
    assert await add(lists, GLOBAL, "attachment-block", ".z1", ".x1") == 2
    with pytest.raises(ListFull):
        await add(lists, GLOBAL, "attachment-block", ".z3")
    assert await add(lists, GLOBAL, "attachment-block", *first) == 500
    assert len(await read(lists, GLOBAL, "attachment-block")) == 1_000
    await lists.delete_entries(GLOBAL, "attachment-block", [".x1"], SOAR)
    assert await add(lists, GLOBAL, "attachment-block", ".z3") == 1


async def test_every_text_is_streamed_as_json(lists: ListService) -> None:
    entry, comment, end = 'he said "a\\b"', 'nul \x00 "quote" \\ \x01 \x7f \u2028', "2031-01-01T00:00:00.000Z"
    await add(lists, GLOBAL, "subject-block", {"entry": entry, "comment": comment, "expires": end}, "plain")
    first, second = await read(lists, GLOBAL, "subject-block")
    assert (first["entry"], first["comment"], first["expires"], first["createdBy"]) == (entry, comment, end, SOAR.name)
    assert (second["entry"], second["comment"], second["expires"], second["hits"]) == ("plain", "", None, 0)
    await lists.delete_entries(GLOBAL, "subject-block", [entry], SOAR)
    await lists.undo(GLOBAL, "subject-block", (await lists.changes(GLOBAL, "subject-block"))[0].number, SOAR)
    assert (await read(lists, GLOBAL, "subject-block"))[0]["comment"] == comment


async def test_a_scope_sees_its_own_entries_alone(lists: ListService, tenant: UUID, database: Database) -> None:
    await add(lists, GLOBAL, "sender-block", "everywhere.example")
    await add(lists, ListScope(tenant), "sender-block", "here.example")
    assert await names(lists, GLOBAL, "sender-block") == ["everywhere.example"]
    assert await names(lists, ListScope(tenant), "sender-block") == ["here.example"]
    assert await names(lists, ListScope(uuid4()), "sender-block") == []
    for setting, expected in (("global", 1), (str(tenant), 1), (str(uuid4()), 0), ("all", 2)):
        async with database.connection() as connection, scoped(connection, setting):
            assert await connection.fetchval("SELECT count(*) FROM list_entries") == expected
            assert await connection.fetchval("SELECT count(*) FROM lists") == expected
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM list_entries") == 0


async def test_a_transaction_cannot_write_into_a_list_of_another_scope(
    lists: ListService, tenant: UUID, database: Database
) -> None:
    await add(lists, GLOBAL, "sender-block", "everywhere.example")
    insert = "INSERT INTO list_entries SELECT $1, 'x.example', '', '', '', '', ''"
    async with database.connection() as connection:
        async with scoped(connection, "all"):
            list_id = await connection.fetchval("SELECT list_id FROM lists")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with scoped(connection, str(tenant)):
                await connection.execute(insert, list_id)


async def test_a_tenant_that_is_gone_takes_its_lists_along(
    lists: ListService, tenant: UUID, database: Database
) -> None:
    await add(lists, ListScope(tenant), "sender-block", "here.example")
    async with database.connection() as connection:
        await connection.execute("DELETE FROM tenants WHERE uid = $1", tenant)
        async with scoped(connection, "all"):
            assert await connection.fetchval("SELECT count(*) FROM list_entries") == 0
    assert await names(lists, ListScope(tenant), "sender-block") == []
    with pytest.raises(TenantNotFound):
        await add(lists, ListScope(tenant), "sender-block", "here.example")


async def test_each_change_leaves_its_line_in_the_audit_and_its_row_for_the_replicas(
    lists: ListService, tenant: UUID, database: Database
) -> None:
    scope = ListScope(tenant)
    await add(lists, scope, "sender-block", "a.example", "b.example")
    await add(lists, scope, "sender-block", "b.example", "c.example")
    await lists.delete_entries(scope, "sender-block", ["c.example", "d.example"], SOAR)
    await lists.delete_entries(scope, "sender-block", ["d.example"], SOAR)
    deeds = [deed for deed in reversed(await AuditStore(database).find(Scope.of(tenant))) if "lists" in deed.action]
    assert [(deed.action, deed.details) for deed in deeds] == [
        ("lists.add", {"entries": 2, "added": 2}),
        ("lists.add", {"entries": 2, "added": 1}),
        ("lists.delete", {"deleted": 1}),
    ]
    assert {(deed.actor, deed.tenant, deed.subject) for deed in deeds} == {(SOAR, tenant, "sender-block")}
    assert await AuditStore(database).find(Scope.of(uuid4())) == []
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT entries FROM list_changes ORDER BY change")
        assert [row["entries"] for row in rows] == [
            ["a.example", "b.example"],
            ["b.example", "c.example"],
            ["c.example"],
        ]
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await connection.execute("UPDATE audit SET actor = 'somebody else'")


async def test_a_failed_change_leaves_no_trace(lists: ListService, database: Database) -> None:
    for block in range(2):
        await add(lists, GLOBAL, "attachment-block", *(f".b{block}x{n}" for n in range(500)))
    with pytest.raises(ListFull):
        await add(lists, GLOBAL, "attachment-block", ".one")
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM list_changes") == 2
        assert await connection.fetchval("SELECT count(*) FROM audit") == 2


async def test_an_entry_goes_a_day_after_it_expired(
    lists: ListService, database: Database, tenant: UUID, store: ListStore
) -> None:
    now = datetime(2031, 1, 2, 12, tzinfo=UTC)
    old, young = "2031-01-01T11:59:59Z", "2031-01-01T12:00:01Z"
    given = [{"entry": "old.example", "expires": old}, {"entry": "young.example", "expires": young}, "ever.example"]
    for scope in (GLOBAL, ListScope(tenant)):
        await add(lists, scope, "sender-block", *given)
    await add(lists, GLOBAL, "url-block", {"entry": "old.example/x", "expires": old})
    assert await Expiry(store).purge(now) == 3
    assert await names(lists, GLOBAL, "sender-block") == ["ever.example", "young.example"]
    assert await names(lists, ListScope(tenant), "sender-block") == ["ever.example", "young.example"]
    assert await names(lists, GLOBAL, "url-block") == []
    assert await Expiry(store).purge(now) == 0
    deeds = [deed for deed in await AuditStore(database).find(Scope.deployment()) if deed.action == "lists.expire"]
    assert [deed.actor.name for deed in deeds] == ["system:expiry"] * 3


async def test_an_entry_that_was_extended_meanwhile_stays(lists: ListService, store: ListStore) -> None:
    before = "2031-01-01T00:00:00.000Z"
    await add(lists, GLOBAL, "sender-block", {"entry": "a.example", "expires": "2030-01-01T00:00:00Z"})
    ((scope, name, entries),) = await store.expired(Scope.deployment(), before, 10)
    await add(lists, GLOBAL, "sender-block", {"entry": "a.example", "expires": None})
    assert await store.delete(scope, find_list(name), entries, stamp_of(SOAR), expired_before=before) == 0
    assert await names(lists, GLOBAL, "sender-block") == ["a.example"]


async def test_a_snapshot_ignores_later_changes(lists: ListService) -> None:
    await add(lists, GLOBAL, "sender-block", "a.example")
    pieces: list[bytes] = []

    async def keep(piece: bytes) -> None:
        pieces.append(bytes(piece))

    async with lists.reading(GLOBAL, "sender-block") as reading:
        await add(lists, GLOBAL, "sender-block", "b.example")
        await lists.delete_entries(GLOBAL, "sender-block", ["a.example"], SOAR)
        await reading.copy_to(keep)
    assert reading.count == 1
    assert json.loads(b"".join(pieces))["entry"] == "a.example"


class ReaderLeft(Exception):
    pass


async def test_a_reader_that_leaves_keeps_no_lock(database: Database, database_url: str) -> None:
    """The server has sent all of a short list by then, so that there is nothing to cancel."""
    streams = Database(database_url, 1, 60.0)
    lists = ListService(ListStore(database, streams))
    await add(lists, GLOBAL, "sender-block", "a.example")

    async def leave(_: bytes) -> None:
        raise ReaderLeft

    async with asyncio.timeout(30):
        with pytest.raises(ReaderLeft):
            async with lists.reading(GLOBAL, "sender-block") as reading:
                await reading.copy_to(leave)
    connection = await asyncpg.connect(database_url)
    await connection.execute("SET lock_timeout = '30s'; TRUNCATE list_entries")
    await connection.close()
    async with lists.reading(GLOBAL, "sender-block") as reading:
        assert reading.count == 1  # the pool has a connection again
    await streams.close()


async def test_a_reader_that_stops_loses_its_snapshot(database: Database, database_url: str) -> None:
    streams = Database(database_url, 1, 5.0)
    lists = ListService(ListStore(database, streams, stream_seconds=1.0))
    await add(lists, GLOBAL, "sender-block", *(f"n{n}.example" for n in range(500)))

    async def stand_still(_: bytes) -> None:
        await asyncio.sleep(20)

    with pytest.raises(TimeoutError):
        async with lists.reading(GLOBAL, "sender-block") as reading:
            await reading.copy_to(stand_still)
    async with asyncio.timeout(20):
        assert len(await read(lists, GLOBAL, "sender-block")) == 500
    await streams.close()
