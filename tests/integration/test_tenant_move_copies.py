"""What a move copies beside the switch: sender history, bytes of held messages, and counts of whole days."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest

from mailwarden.access.audit import record_event
from mailwarden.cells import move
from mailwarden.cells.bodies import BodyCopies
from mailwarden.cells.move import TenantMove
from mailwarden.cells.senders import RECENT_SENDERS, RECENT_THREADS
from mailwarden.history import open_history
from mailwarden.history.postgresql.days import ALL_TENANTS, read_days
from mailwarden.history.store import ContactCount
from mailwarden.quarantine.release import ReleaseStore
from mailwarden.quarantine.retention import RetentionStore
from mailwarden.quarantine.store import QuarantineStore
from rig.engines import Engines
from tests.databases import ReusedDatabases
from tests.integration.cell_pair import ACTOR, ALL, OneCell, Pair, open_pair


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """No abby runs here that has to learn of a switch."""
    monkeypatch.setattr(move, "SETTLE_SECONDS", 0.0)


@pytest.fixture
async def pair(engines: Engines, reused_databases: ReusedDatabases, tmp_path: Path) -> AsyncIterator[Pair]:
    async with open_pair(engines, reused_databases, tmp_path) as opened:
        yield opened


async def pairs(cell: OneCell, tenant: UUID) -> dict[bytes, int]:
    """Return the sender history of the tenant in a cell: the messages of each pair."""
    async with cell.database.connection() as connection:
        rows = await connection.fetch("SELECT pair, messages FROM relationships WHERE tenant = $1", tenant)
    return {cast("bytes", row["pair"]): cast("int", row["messages"]) for row in rows}


async def test_sender_history_that_changes_during_the_move_follows(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    senders, today = open_history(pair.a.database).senders, datetime.now(UTC).date()
    await share_salt(pair)
    before = [ContactCount(pair.uid, name * 16, today, 3) for name in (b"a", b"b", b"c")]
    await senders.add(ALL, before)
    original = TenantMove._drain

    async def busy(*values: object) -> object:
        """After the first copy: one pair is seen again, one is new, one is removed; a mail of a thread is stored."""
        later = [ContactCount(pair.uid, b"a" * 16, today, 2), ContactCount(pair.uid, b"d" * 16, today, 1)]
        await senders.add(ALL, later)
        await senders.add_messages(ALL, [(pair.uid, b"t" * 16)], today)
        await senders.remove(ALL, pair.uid, [b"b" * 16])
        return await original(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(TenantMove, "_drain", busy)
    await pair.move().run(ACTOR)
    wanted = {b"a" * 16: 5, b"c" * 16: 3, b"d" * 16: 1}
    assert (await pairs(pair.a, pair.uid), await pairs(pair.b, pair.uid)) == (wanted, wanted)
    found = await open_history(pair.b.database).senders.stats(ALL, [], [(pair.uid, b"t" * 16)])
    assert list(found) == [b"t" * 16]


async def share_salt(pair: Pair) -> None:
    async with pair.a.database.connection() as connection:
        salt = await connection.fetchval("SELECT salt FROM relationship_salt")
    async with pair.b.database.connection() as connection:
        await connection.execute("UPDATE relationship_salt SET salt = $1", salt)


@pytest.mark.parametrize("reported", [False, True])
async def test_sender_history_that_changes_just_before_the_pause_follows(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, reported: bool
) -> None:
    """After the last look at all rows: a pair is seen again, one is new, and a report removes one of long ago."""
    senders, today = open_history(pair.a.database).senders, datetime.now(UTC).date()
    await share_salt(pair)
    await senders.add(ALL, [ContactCount(pair.uid, name * 16, date(2026, 1, 2), 3) for name in (b"a", b"b")])
    original = TenantMove._freeze

    async def busy(*values: object) -> object:
        later = [ContactCount(pair.uid, b"a" * 16, today, 2), ContactCount(pair.uid, b"d" * 16, today, 1)]
        await senders.add(ALL, later)
        await senders.add_messages(ALL, [(pair.uid, b"t" * 16)], today)
        if reported:
            async with pair.a.database.connection() as connection:
                await record_event(connection, ACTOR, "learning.report", "Offer", {}, tenant=pair.uid)
            await senders.remove(ALL, pair.uid, [b"b" * 16])
        return await original(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(TenantMove, "_freeze", busy)
    await pair.move().run(ACTOR)
    wanted = {b"a" * 16: 5, b"d" * 16: 1} | ({} if reported else {b"b" * 16: 3})
    assert await pairs(pair.b, pair.uid) == wanted
    found = await open_history(pair.b.database).senders.stats(ALL, [], [(pair.uid, b"t" * 16)])
    assert list(found) == [b"t" * 16]


async def test_an_index_bounds_the_look_at_sender_history_while_changes_pause(pair: Pair) -> None:
    async with pair.a.database.connection() as connection, connection.transaction():
        for rows, columns in (
            (RECENT_SENDERS, "(tenant, pair, messages, days, first_seen, last_seen)"),
            (RECENT_THREADS, "(tenant, message, day)"),
        ):
            some = "1, 1, '2026-01-02', '2026-01-02'" if rows is RECENT_SENDERS else "'2026-01-02'"
            await connection.execute(
                f"INSERT INTO {rows.table} {columns} SELECT $1, decode(md5(n::text), 'hex'), {some} "
                "FROM generate_series(1, 3000) AS n",
                pair.uid,
            )
            await connection.execute(f"ANALYZE {rows.table}")
            plan = await connection.fetch(
                f"EXPLAIN SELECT * FROM {rows.table} WHERE {rows.condition}",
                pair.uid,
                "1000",
                datetime.now(UTC).date(),
            )
            lines = " ".join(str(row["QUERY PLAN"]) for row in plan)
            assert "relationships_last_seen" in lines or "thread_messages_day" in lines, lines


async def test_bytes_that_the_new_cell_removes_before_it_has_their_row_are_copied_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its retention began to remove them as orphans of an earlier move, and ends after the switch."""
    uid = await pair.a.hold(pair.uid)
    held = await QuarantineStore(pair.a.database).find(ALL, uid)
    address, vault = held.address, pair.b.access.vault
    assert address is not None
    original, removals, removing = TenantMove._drain, [], asyncio.Event()

    async def remove() -> None:
        removing.set()
        await asyncio.sleep(1.0)
        await vault.remove(pair.uid, address)

    async def watched(*values: object) -> object:
        store, vault_uid = RetentionStore(pair.b.database), await vault.uid()
        removals.append(asyncio.create_task(store.clear(ALL, vault_uid, pair.uid, address, remove)))
        await removing.wait()
        return await original(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(TenantMove, "_drain", watched)
    await pair.move().run(ACTOR)
    assert await removals[0], "they were removed"
    assert await vault.verifies(pair.uid, address)


async def test_a_message_whose_bytes_are_copied_again_is_not_missing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new cell has removed the bytes, and a release has found none."""
    uid = await pair.a.hold(pair.uid)
    original, vault = BodyCopies.restore, pair.b.access.vault

    async def removed(*values: object) -> int:
        held = await QuarantineStore(pair.b.database).find(ALL, uid)
        assert held.address is not None
        await vault.remove(pair.uid, held.address)
        await ReleaseStore(pair.b.database).set_missing(ALL, held, missing=True)
        return await original(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(BodyCopies, "restore", removed)
    await pair.move().run(ACTOR)
    held = await QuarantineStore(pair.b.database).find(ALL, uid)
    assert held.address is not None
    assert (await vault.verifies(pair.uid, held.address), held.missing) == (True, False)


async def test_counts_of_whole_days_are_right_in_each_cell_of_two_moves(pair: Pair) -> None:
    """The hours of this day are not kept any more: nothing sums it again."""
    today = datetime.now(UTC).date()
    old, empty = today - timedelta(days=30), today - timedelta(days=40)
    key = "decision:deliver"

    async def store(cell: OneCell, tenant: UUID, day: date, messages: int) -> None:
        async with cell.database.connection() as connection:
            await connection.execute(
                "INSERT INTO history_days (tenant, day, counts) VALUES ($1, $2, jsonb_build_object($3::text, $4::int))",
                tenant,
                day,
                key,
                messages,
            )

    async def figures(cell: OneCell) -> list[int]:
        async with cell.database.connection() as connection:
            days = (await read_days(connection, ALL, empty, today)).days
        return [days.get(day, {}).get(key, 0) for day in (old, empty)]

    for tenant, messages in ((pair.uid, 5), (ALL_TENANTS, 8)):
        await store(pair.a, tenant, old, messages)
        await store(pair.a, tenant, empty, messages)
    await store(pair.b, ALL_TENANTS, old, 3)
    await pair.move().run(ACTOR)
    assert (await figures(pair.a), await figures(pair.b)) == ([3, 3], [8, 5])
    await pair.move().finish()
    assert (await figures(pair.a), await figures(pair.b)) == ([3, 3], [8, 5])
    await pair.move(back=True).run(ACTOR)
    assert (await figures(pair.a), await figures(pair.b)) == ([8, 8], [3, 0])
