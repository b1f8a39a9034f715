"""Moves of a tenant where one cell, or both, has its history in ClickHouse: every row follows, and none is lost."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from mailwarden.access.tenants import TenantStore
from mailwarden.cells import history as moved_history
from mailwarden.cells import move
from mailwarden.cells.history import MovedHistory, Report
from mailwarden.cells.move import TenantMove
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.history import migration, pages
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.table import ClickhouseTable, wait_for_deletion
from mailwarden.history.migration import Copied, HistoryTable
from mailwarden.history.query import Query
from mailwarden.history.records import decode
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from rig.clickhouse import EmbeddedClickhouse
from rig.engines import Engines
from rig.ports import free_port
from tests.clickhouse_databases import opened_history
from tests.databases import ReusedDatabases
from tests.integration.cell_pair import ACTOR, ALL, OneCell, Pair, open_pair
from tests.integration.held_messages import finished

pytestmark = pytest.mark.slow

PLACES = {"both": (True, True), "the old cell": (True, False), "the new cell": (False, True)}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(moved_history, "IN_FLIGHT_SECONDS", 0.0)
    monkeypatch.setattr(moved_history, "REPLICAS_SECONDS", 0.0)
    monkeypatch.setattr(moved_history, "SHARED_SECONDS", 0.0)
    for limit in ("SEARCH_SECONDS", "CANDIDATE_SECONDS"):  # a busy machine must not end a search
        monkeypatch.setattr(pages, limit, 60.0)


@pytest.fixture
async def stores(clickhouse_server: EmbeddedClickhouse) -> AsyncIterator[Sequence[Clickhouse]]:
    async with opened_history(clickhouse_server) as one, opened_history(clickhouse_server) as other:
        yield one, other


@pytest.fixture(params=PLACES)
async def pair(
    request: pytest.FixtureRequest,
    engines: Engines,
    reused_databases: ReusedDatabases,
    tmp_path: Path,
    stores: Sequence[Clickhouse],
) -> AsyncIterator[Pair]:
    chosen = [store if used else None for store, used in zip(stores, PLACES[request.param], strict=True)]
    async with open_pair(engines, reused_databases, tmp_path, chosen) as opened:
        yield opened


@pytest.fixture
async def columns(
    engines: Engines, reused_databases: ReusedDatabases, tmp_path: Path, stores: Sequence[Clickhouse]
) -> AsyncIterator[Pair]:
    """Two cells with their history in ClickHouse."""
    async with open_pair(engines, reused_databases, tmp_path, stores) as opened:
        yield opened


async def store(cell: OneCell, tenant: UUID, number: int) -> set[UUID]:
    requests = [finished(tenant, subject=f"Number {each}") for each in range(number)]
    saved = await cell.history.save(ALL, requests)
    assert (saved.stored, saved.rejected) == (number, ())
    return {request.ggrid for request in requests}


async def rows(cell: OneCell, tenant: UUID) -> set[UUID]:
    """Return the rows of a tenant that a search finds."""
    page = await cell.history.search(Scope.of(tenant), Query(), None, 500)
    return {row.ggrid for row in page.rows}


async def left(cell: OneCell, tenant: UUID) -> int:
    """Return the rows of a tenant in all stores of a cell."""
    async with cell.database.connection() as connection:
        number = cast("int", await connection.fetchval("SELECT count(*) FROM history WHERE tenant = $1", tenant))
    if cell.access.clickhouse is not None:
        table = ClickhouseTable(cell.access.clickhouse, tenant)
        number += sum([await table.count(day) for day in await table.days()])
    return number


async def test_all_rows_follow_and_none_of_others_is_deleted(pair: Pair) -> None:
    other = (await TenantStore(pair.a.database).create(ALL, "south", ["south.example"])).uid
    wanted, kept = await store(pair.a, pair.uid, 30), await store(pair.a, other, 20)
    moved = await pair.move().run(ACTOR)
    assert moved.history == 30
    assert await rows(pair.b, pair.uid) == wanted
    assert await rows(pair.a, pair.uid) == wanted, "for a call that began before the switch"

    late = await store(pair.a, pair.uid, 5)  # a guard of the old cell had them in its journal
    new = await store(pair.b, pair.uid, 3)
    await pair.move().finish()
    assert await rows(pair.b, pair.uid) == wanted | late | new
    assert await left(pair.a, pair.uid) == 0
    assert await rows(pair.a, other) == kept
    assert await left(pair.b, pair.uid) == 38


async def test_a_late_row_of_a_moved_tenant_waits_in_postgresql_with_one_event(columns: Pair) -> None:
    """No row is added to those in ClickHouse, which the end of the move copies, verifies and deletes."""
    await columns.move().run(ACTOR)
    request = finished(columns.uid)
    for _ in range(2):  # a batch may be sent again
        await columns.a.history.save(ALL, [request])
    async with columns.a.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM history WHERE tenant = $1", columns.uid) == 1
        events = "SELECT count(*) FROM events WHERE type = 'message.judged' AND tenant = $1"
        assert await connection.fetchval(events, columns.uid) == 1
    assert await rows(columns.a, columns.uid) == set()
    await columns.move().finish()
    assert await rows(columns.b, columns.uid) == {request.ggrid}
    assert await left(columns.a, columns.uid) == 0


async def test_a_tenant_that_comes_back_finds_late_rows_that_were_not_moved(columns: Pair) -> None:
    first = await store(columns.a, columns.uid, 4)
    await columns.move().run(ACTOR)
    late, there = await store(columns.a, columns.uid, 2), await store(columns.b, columns.uid, 3)
    await columns.move(back=True).run(ACTOR)
    assert await rows(columns.a, columns.uid) == first | late | there
    await columns.move(back=True).finish()
    assert await left(columns.b, columns.uid) == 0
    new = await store(columns.a, columns.uid, 1)
    assert await rows(columns.a, columns.uid) == first | late | there | new


async def test_nothing_is_deleted_while_a_row_cannot_be_copied(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await store(pair.a, pair.uid, 10)

    def decode_most(record: bytes) -> FinishedRequest:
        if b"Number 3" in record:
            raise ValueError("another version")
        return decode(record)

    monkeypatch.setattr(migration, "decode", decode_most)
    await pair.move().run(ACTOR)
    assert len(await rows(pair.b, pair.uid)) == 9
    with pytest.raises(CommandError, match=r"^1 rows of history cannot be copied, such as .*another version.*Nothing"):
        await pair.move().finish()
    assert await left(pair.a, pair.uid) == 10
    monkeypatch.setattr(migration, "decode", decode)
    await pair.move().finish()
    assert (len(await rows(pair.b, pair.uid)), await left(pair.a, pair.uid)) == (10, 0)


async def test_nothing_is_deleted_while_the_other_cell_lacks_a_row(
    columns: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store(columns.a, columns.uid, 10)
    await columns.move().run(ACTOR)
    (target,) = [store for store in (columns.b.access.clickhouse,) if store]
    await ClickhouseTable(target).delete_tenant(columns.uid)
    assert await wait_for_deletion(target)

    async def copy_nothing(*_: object) -> Copied:
        return Copied()

    with monkeypatch.context() as patched:
        patched.setattr(moved_history, "copy_day", copy_nothing)
        with pytest.raises(CommandError, match=r"The other cell lacks 10 rows of history of .*Nothing was deleted"):
            await columns.move().finish()
    assert await left(columns.a, columns.uid) == 10
    await columns.move().finish()
    assert (len(await rows(columns.b, columns.uid)), await left(columns.a, columns.uid)) == (10, 0)


async def test_nothing_is_deleted_while_a_replica_of_the_new_cell_lacks_rows(
    columns: Pair, clickhouse_server: EmbeddedClickhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does if the other lost Keeper during an insert, and shows rows that it is about to discard."""
    await store(columns.a, columns.uid, 10)
    await columns.move().run(ACTOR)
    real, there = Clickhouse.of_replica, columns.b.access.clickhouse
    assert there is not None
    async with opened_history(clickhouse_server) as empty:

        def of_replica(client: Clickhouse, url: str) -> Clickhouse:
            return real(empty if "localhost" in url else client, url)

        monkeypatch.setattr(Clickhouse, "of_replica", of_replica)
        client = Clickhouse(replace(there.target, urls=(*there.target.urls, alias(there))))
        last = move_with(columns, columns.a.access.clickhouse, client)
        with pytest.raises(CommandError, match=r"lacks 10 rows .*, or one of its replicas does\. Nothing was deleted"):
            await last.finish()
        await client.close()
    assert await left(columns.a, columns.uid) == 10


def alias(clickhouse: Clickhouse) -> str:
    """Return another name of the server."""
    return clickhouse.target.urls[0].replace("127.0.0.1", "localhost")


def move_with(
    pair: Pair, one: Clickhouse | None, other: Clickhouse | None, report: Report = lambda _: None
) -> TenantMove:
    """Return the move of the tenant with other connections to ClickHouse."""
    a, b = replace(pair.a.access, clickhouse=one), replace(pair.b.access, clickhouse=other)
    return TenantMove(a, b, pair.directory, pair.uid, report)


async def test_replicas_that_do_not_answer_end_a_move_before_a_row_is_deleted(columns: Pair) -> None:
    await store(columns.a, columns.uid, 10)
    await columns.move().run(ACTOR)
    clients = [columns.a.access.clickhouse, columns.b.access.clickhouse]
    for place, own in enumerate(clients):
        assert own is not None
        dead = f"http://127.0.0.1:{free_port()}"
        client = Clickhouse(replace(own.target, urls=(*own.target.urls, dead)))
        one, other = (client if number == place else each for number, each in enumerate(clients))
        last = move_with(columns, one, other)
        with pytest.raises((CommandError, StorageUnavailable)):
            await last.finish()
        await client.close()
    assert await left(columns.a, columns.uid) == 10


async def test_nothing_is_deleted_if_a_guard_wrote_after_the_comparison(
    columns: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guard that hung since before the switch: its row is found by the next run."""
    await store(columns.a, columns.uid, 10)
    await columns.move().run(ACTOR)
    late = finished(columns.uid)
    real, table = MovedHistory._verify, ClickhouseTable(cast("Clickhouse", columns.a.access.clickhouse))

    async def verify(self: MovedHistory, source: ClickhouseTable, copies: Sequence[HistoryTable]) -> int:
        verified = await real(self, source, copies)
        await table.add(late.created.date(), [late])
        return verified

    with monkeypatch.context() as patched:
        patched.setattr(MovedHistory, "_verify", verify)
        with pytest.raises(CommandError, match="has 11 rows of the tenant, and 10 of them are in the other cell"):
            await columns.move().finish()
    assert await left(columns.a, columns.uid) == 11
    await columns.move().finish()
    assert (await left(columns.a, columns.uid), len(await rows(columns.b, columns.uid))) == (0, 11)


async def test_a_row_of_another_tenant_with_the_same_ggrid_is_no_copy(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message to a tenant of each cell has a row in both. The late one is copied by the next run."""
    other = (await TenantStore(pair.b.database).create(ALL, "south", ["south.example"])).uid
    await pair.move().run(ACTOR)
    late = finished(pair.uid)
    await pair.b.history.save(ALL, [replace(late, tenant=other)])
    await pair.a.history.save(ALL, [late])

    async def copy_nothing(*_: object) -> Copied:
        return Copied()

    with monkeypatch.context() as patched:
        patched.setattr(moved_history, "copy_day", copy_nothing)
        with pytest.raises(CommandError, match="PostgreSQL of this cell keeps 1 rows of history"):
            await pair.move().finish()
    assert await left(pair.a, pair.uid) == 1
    await pair.move().finish()
    assert (await left(pair.a, pair.uid), await rows(pair.b, pair.uid)) == (0, {late.ggrid})
    assert await rows(pair.b, other) == {late.ggrid}


@pytest.mark.parametrize("named", ["the same address", "another name of the server"])
async def test_cells_that_use_one_table_are_refused(
    named: str, engines: Engines, reused_databases: ReusedDatabases, tmp_path: Path, stores: Sequence[Clickhouse]
) -> None:
    """Before anything is changed, and again at the end."""
    one = stores[0]
    url = alias(one) if named == "another name of the server" else one.target.urls[0]
    other = Clickhouse(replace(one.target, urls=(url,)))
    async with open_pair(engines, reused_databases, tmp_path, (one, other)) as pair:
        wanted = await store(pair.a, pair.uid, 10)
        with pytest.raises(CommandError, match=r"one table of ClickHouse.*Nothing was changed\. Give each cell a"):
            await pair.move().run(ACTOR)
        assert await pair.directory.place(pair.uid) is None
        with monkeypatched_check():
            await pair.move().run(ACTOR)
        with pytest.raises(CommandError, match="one table of ClickHouse"):
            await pair.move().finish()
        assert await rows(pair.b, pair.uid) == wanted
    await other.close()


@contextmanager
def monkeypatched_check() -> Iterator[None]:
    """Let a move begin that its first check refuses."""

    async def check(_: MovedHistory) -> None:
        return

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MovedHistory, "check", check)
        yield


async def test_locks_of_a_move_are_kept_while_history_is_copied(columns: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy cuts connections without traffic; a cut one ends the move before it deletes."""
    await store(columns.a, columns.uid, 3)
    await columns.move().run(ACTOR)
    monkeypatch.setattr(move, "PING_SECONDS", 0.01)
    asked: list[float] = []
    last, real = columns.move(), MovedHistory._copy_all
    check_alone = last._check_alone

    async def counted() -> None:
        asked.append(time.monotonic())
        await check_alone()

    async def copy_slowly(self: MovedHistory, tables: object) -> Copied:
        copied = await real(self, tables)  # type: ignore[arg-type]
        await asyncio.sleep(0.3)
        assert len(asked) > 5
        await last._locks[0].close()
        return copied

    monkeypatch.setattr(last, "_check_alone", counted)
    with monkeypatch.context() as patched:
        patched.setattr(MovedHistory, "_copy_all", copy_slowly)
        with pytest.raises(asyncpg.InterfaceError):
            await last.finish()
    assert await left(columns.a, columns.uid) == 3


async def test_the_end_of_a_move_waits_for_batches_that_are_being_written(
    columns: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []
    monkeypatch.setattr(moved_history, "IN_FLIGHT_SECONDS", 2.0)
    await columns.move().run(ACTOR)
    began = time.monotonic()
    await move_with(columns, columns.a.access.clickhouse, columns.b.access.clickhouse, waits.append).finish()
    assert time.monotonic() - began > 1.0
    assert [line for line in waits if line.startswith("waiting for ")]
