"""The outbox in PostgreSQL: nothing is skipped, order per subject holds, tenants are separated, old events end."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from mailwarden.database.pool import Connection, Database
from mailwarden.errors import CursorExpired, Overloaded
from mailwarden.events import reader as reader_module
from mailwarden.events.catalogue import KeyRevoked, encode
from mailwarden.events.maintenance import EventRetention, existing_days
from mailwarden.events.outbox import new_event, record
from mailwarden.events.reader import EventReader, Filter, cursor_of
from mailwarden.events.waiting import EventWatch
from mailwarden.model.scope import Scope

ALL = Filter(Scope.deployment(), deployment=True)
TENANT, OTHER = uuid4(), uuid4()


async def write(connection: Connection, *names: str, tenant: UUID | None = TENANT) -> None:
    await record(connection, [new_event(KeyRevoked(name, name, "test"), tenant, name) for name in names])


async def written(database: Database, *names: str, tenant: UUID | None = TENANT) -> None:
    async with database.connection() as connection:
        await write(connection, *names, tenant=tenant)


@pytest.fixture
def reader(database: Database) -> EventReader:
    return EventReader(database)


async def read_all(reader: EventReader, wanted: Filter = ALL, limit: int = 100) -> list[str]:
    """Read page by page from the start."""
    found: list[str] = []
    cursor = None
    while True:
        page = await reader.read_after(wanted, cursor, limit)
        found += [event.subject for event in page.events]
        cursor = page.next
        if not page.more:
            return found


async def test_events_are_read_once_in_their_order(database: Database, reader: EventReader) -> None:
    await written(database, *"abcdefg")
    for limit in (1, 2, 7, 100):
        assert await read_all(reader, limit=limit) == list("abcdefg")
    page = await reader.read_after(ALL, None)
    assert len({event.id for event in page.events}) == 7
    assert all(event.id.version == 7 and event.tenant == TENANT for event in page.events)
    assert abs(page.events[0].time - datetime.now(UTC)) < timedelta(minutes=5)
    assert (await reader.read_after(ALL, page.next)).events == []


async def test_a_commit_in_reverse_order_skips_nothing(database: Database, reader: EventReader) -> None:
    async with database.connection() as slow, database.connection() as fast:
        async with slow.transaction():
            await write(slow, "slow")
            async with fast.transaction():
                await write(fast, "fast")
            page = await reader.read_after(ALL, None)
            assert page.events == [], "`fast` waits for the lower number of `slow`"
            await written(database, "later")
            assert (await reader.read_after(ALL, page.next)).events == []
        found = await reader.read_after(ALL, page.next)
    assert [event.subject for event in found.events] == ["slow", "fast", "later"]


async def test_a_rolled_back_change_leaves_no_event_and_blocks_nobody(database: Database, reader: EventReader) -> None:
    async with database.connection() as connection:
        await connection.execute("BEGIN")
        await write(connection, "gone")
        await connection.execute("ROLLBACK")
    await written(database, "kept")
    assert await read_all(reader) == ["kept"]


async def test_order_is_that_of_the_changes_not_of_the_transactions(database: Database, reader: EventReader) -> None:
    """The older transaction changes the row last, so its event must come last."""
    async with database.connection() as older, database.connection() as newer:
        await older.execute("CREATE TABLE changed (value text)")
        await older.execute("INSERT INTO changed VALUES ('')")
        async with older.transaction():
            await older.execute("SELECT pg_current_xact_id()")  # has its transaction id now
            async with newer.transaction():
                await newer.execute("UPDATE changed SET value = value || 'first'")
                waiting = asyncio.create_task(older.execute("UPDATE changed SET value = value || ' second'"))
                await asyncio.sleep(0.1)
                await write(newer, "first")
            await waiting
            await write(older, "second")
        assert await older.fetchval("SELECT value FROM changed") == "first second"
    assert await read_all(reader) == ["first", "second"]


async def test_readers_beside_many_writers_miss_nothing(database_url: str) -> None:
    writers, each = 8, 40
    database, reading = Database(database_url, writers), Database(database_url, 2)
    reader, found = EventReader(reading), list[str]()

    async def write_on(number: int) -> None:
        for turn in range(each):
            async with database.connection() as connection, connection.transaction():
                await write(connection, f"{number}:{turn}")
                await asyncio.sleep(0.002 * ((number + turn) % 3))

    async def read_on() -> None:
        cursor = None
        while len(found) < writers * each:
            page = await reader.read_after(ALL, cursor, 20)
            found.extend(event.subject for event in page.events)
            cursor = page.next

    async with asyncio.timeout(60):
        await asyncio.gather(read_on(), *(write_on(number) for number in range(writers)))
    for number in range(writers):
        own = [subject for subject in found if subject.startswith(f"{number}:")]
        assert own == [f"{number}:{turn}" for turn in range(each)]
    await database.close()
    await reading.close()


async def test_a_tenant_sees_its_own_events_alone(database: Database, reader: EventReader) -> None:
    await written(database, "mine")
    await written(database, "foreign", tenant=OTHER)
    await written(database, "deployment", tenant=None)
    own = Filter(Scope.of(TENANT), deployment=False)
    assert await read_all(reader, own) == ["mine"]
    assert await read_all(reader, Filter(Scope.of(), deployment=False)) == []
    assert await read_all(reader, Filter(Scope.of(TENANT, OTHER), deployment=False)) == ["mine", "foreign"]
    assert await read_all(reader) == ["mine", "foreign", "deployment"]
    assert await read_all(reader, Filter(Scope.deployment(), True, frozenset({"key.created"}))) == []
    assert await read_all(reader, Filter(Scope.deployment(), True, frozenset({"key.revoked"}))) == await read_all(
        reader
    )
    assert own.matches(TENANT, "x")
    assert not own.matches(OTHER, "x")
    assert not own.matches(None, "x")


async def test_a_page_looks_at_a_bounded_number_of_rows(
    database: Database, reader: EventReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = reader_module._READ.replace(f"LIMIT {reader_module.LOOKED_AT}", "LIMIT 3")
    monkeypatch.setattr(reader_module, "_READ", small)
    monkeypatch.setattr(reader_module, "_REACHED", reader_module._REACHED.replace("OFFSET 4999", "OFFSET 2"))
    monkeypatch.setattr(reader_module, "LOOKED_AT", 3)
    await written(database, *"abcdefgh", tenant=OTHER)
    await written(database, "mine")
    own = Filter(Scope.of(TENANT), deployment=False)
    first = await reader.read_after(own, None)
    assert (first.events, first.more) == ([], True)
    assert await read_all(reader, own) == ["mine"]
    for limit in (1, 2, 3, 4, 100):
        assert await read_all(reader, limit=limit) == [*"abcdefgh", "mine"]


async def test_a_page_with_a_backlog_reads_its_own_rows_alone(database: Database, reader: EventReader) -> None:
    """A client with a backlog and small pages must not read all looked-at rows for each page."""
    await written(database, *(str(number) for number in range(400)))
    async with database.connection() as connection:
        await connection.execute("ANALYZE events")
        given = (0, await reader.settled(), None, True, None, 10)
        plan = await connection.fetch("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + reader_module._READ, *given)
    scans = [line for row in plan if "Scan" in (line := str(row["QUERY PLAN"])) and "never executed" not in line]
    assert max(int(scan.split("rows=")[1].split()[0].rstrip(")").split(".")[0]) for scan in scans) <= 11, plan


async def test_encoded_events_are_those_that_are_decoded(database: Database, reader: EventReader) -> None:
    await written(database, "a", '\u00e4 \u2028 "')
    await written(database, "deployment", tenant=None)
    page, encoded = await reader.read_after(ALL, None), await reader.read_encoded(ALL, None)
    assert [msgspec.json.decode(each) for each in encoded.events] == [
        msgspec.json.decode(encode(event)) for event in page.events
    ]
    assert (encoded.next, encoded.more) == (page.next, page.more)


async def test_retention_ends_cursors_with_an_error_and_never_with_a_gap(
    database: Database, reader: EventReader
) -> None:
    start = await reader.latest()
    await written(database, "old-1", "old-2")
    read = (await reader.read_after(ALL, start)).next
    async with database.connection() as connection:
        await connection.execute("UPDATE events SET time = now() - interval '3 days'")
    await written(database, "new")
    retention = EventRetention(database, days=2)
    await retention.delete_days()
    with pytest.raises(CursorExpired):
        await reader.read_after(ALL, start)
    assert [event.subject for event in (await reader.read_after(ALL, read)).events] == ["new"]
    assert await read_all(reader) == ["new"]


async def test_days_are_created_in_advance_and_dropped(database: Database, reader: EventReader) -> None:
    retention = EventRetention(database, days=2)
    await asyncio.gather(retention.create_days(), retention.create_days())
    start = await reader.latest()
    async with database.connection() as connection:
        days = await existing_days(connection)
        today = datetime.now(UTC).date()
        assert days == {today + timedelta(days=number) for number in (1, 2, 3)}
        # A day in the past, with a partition of its own as it had in advance.
        past = today - timedelta(days=4)
        await connection.execute(
            f"CREATE TABLE events_{past:%Y%m%d} PARTITION OF events "
            f"FOR VALUES FROM ('{past} 00:00+00') TO ('{past + timedelta(days=1)} 00:00+00')"
        )
        await write(connection, "old")
        moved = await connection.execute("UPDATE events SET time = now() - interval '4 days'")
        assert moved == "UPDATE 1"
    assert await retention.delete_days() == 1
    assert await read_all(reader) == []
    with pytest.raises(CursorExpired):
        await reader.read_after(ALL, start)


async def test_a_cursor_from_a_later_state_is_an_error(reader: EventReader) -> None:
    with pytest.raises(CursorExpired, match="restored"):
        await reader.read_after(ALL, cursor_of(await reader.settled() + 1))


async def test_waiting_clients_are_woken_by_events_for_them(database: Database, reader: EventReader) -> None:
    watch = EventWatch(reader, period=0.02)
    own, foreign = Filter(Scope.of(TENANT), deployment=False), Filter(Scope.of(OTHER), deployment=False)
    number = await reader.settled()

    async def ask(wanted: Filter, seconds: float) -> bool:
        return await watch.wait(wanted, number, seconds)

    waiting: Sequence[asyncio.Task[bool]] = [asyncio.create_task(ask(own, 10)), asyncio.create_task(ask(foreign, 0.5))]
    await asyncio.sleep(0.1)
    assert watch.waiting == 2
    await written(database, "mine")
    assert await asyncio.gather(*waiting) == [True, False]
    assert watch.waiting == 0
    assert await ask(own, 10), "an event before the wait began counts as well"
    await watch.stop()


async def test_the_number_of_waiting_clients_is_bounded(reader: EventReader) -> None:
    watch = EventWatch(reader, period=0.02, max_waiting=1)
    first = asyncio.create_task(watch.wait(ALL, await reader.settled(), 30))
    await asyncio.sleep(0.05)
    with pytest.raises(Overloaded):
        await watch.wait(ALL, 0, 1)
    watch.is_stopping = lambda: True
    assert await first is False, "a process that stops answers its waiting clients"
    await watch.stop()
