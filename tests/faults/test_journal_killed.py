"""guard and PostgreSQL killed under load, and the journal's disk filled: no answered message is missing in history."""

import asyncio
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import STEADY, Note, Start
from tests.faults.guard_status import figure, rows
from tests.faults.invariants import check_answers
from tests.faults.list_calls import rows_of
from tests.faults.load import PATIENCE, Load, kill, start, submitting
from tests.small_disks import mounted
from workshop.rig.disk import SmallDisk
from workshop.rig.engines import Engines
from workshop.rig.product import Product

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "10" if os.environ.get("MAILWARDEN_FULL") == "1" else "3"))
SEED = int(os.environ.get("SEED", "19"))
DISK_MEBIBYTES = 24


async def kill_by_turns(product: Product, engines: Engines, load: Load) -> Counter[str]:
    """Kill guard or PostgreSQL at a random moment; PostgreSQL may still be down when guard starts again."""
    chance, killed = random.Random(SEED), Counter[str]()
    servers = [product.guards[0], engines.postgresql]
    for turn in range(KILLS):
        server = servers[turn] if turn < 2 else chance.choice(servers)
        await asyncio.sleep(chance.uniform(0.3, 1.5))
        await kill(server)
        killed[server.name] += 1
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        if server is engines.postgresql and chance.random() < 0.5 and turn + 1 < KILLS:
            await kill(product.guards[0])
            await start(product.guards[0])
        await start(server)
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
    return killed


async def wait_until_written(product: Product) -> None:
    end = time.monotonic() + PATIENCE
    while await figure(product.guards[0], "mailwarden_history_waiting"):
        assert time.monotonic() < end, "the journal is not written"
        await asyncio.sleep(0.1)


def doubled(engines: Engines, database_url: str) -> int:
    """Count rows, events and counts of senders that were written more than once."""

    def number(query: str) -> int:
        return int(rows_of(engines, database_url, query)[0][0] or 0)

    events = "SELECT count(*) - count(DISTINCT (subject, tenant)) FROM events WHERE type = 'message.scanned'"
    stored = sum(count - 1 for count in rows(engines, database_url).values())
    counted = number("SELECT max(messages) FROM relationships")  # the row of all senders together
    good = number("SELECT count(*) FROM history WHERE verdict = 'clean'")
    return stored + number(events) + max(0, counted - good)


async def test_kills_lose_and_double_no_answered_row(
    start_own_product: Start, note: Note, restored_engines: Engines, database_url: str
) -> None:
    product = start_own_product(STEADY)
    async with submitting(product, clients=6, retry=True) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        killed = await kill_by_turns(product, restored_engines, load)
    await wait_until_written(product)
    acknowledged = {outcome.ggrid for outcome in load.outcomes if outcome.status == 200}
    lost = acknowledged - set(rows(restored_engines, database_url))
    twice = doubled(restored_engines, database_url)
    note(f"killed {dict(killed)}, seed {SEED}")
    note(f"journal: {KILLS} kills, {len(acknowledged)} acknowledged, {len(lost)} lost, {twice} duplicated")
    assert len(acknowledged) > 10 * KILLS
    assert not lost
    assert twice == 0
    assert await figure(product.guards[0], "mailwarden_history_dropped_total") == 0
    assert await figure(product.guards[0], "mailwarden_history_damaged_total") == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk", DISK_MEBIBYTES) as made:
        yield made


async def test_a_full_disk_loses_no_row_while_postgresql_is_up(
    disk: SmallDisk, start_own_product: Start, note: Note, restored_engines: Engines, database_url: str
) -> None:
    product = start_own_product({**STEADY, "journal": {"folder": str(disk.folder / "journal"), "minFreeBytes": 0}})
    full = threading.Event()
    async with submitting(product, clients=6) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        filling = asyncio.create_task(asyncio.to_thread(disk.keep_full, full))
        try:
            end = time.monotonic() + PATIENCE
            while not await figure(product.guards[0], "mailwarden_history_direct_total"):
                assert time.monotonic() < end, "no row is written directly"
                await asyncio.sleep(0.1)
            await load.wait_for_every_kind(time.monotonic())
        finally:
            full.set()
            await filling
    check_answers(load, refusals=())
    await wait_until_written(product)
    direct = await figure(product.guards[0], "mailwarden_history_direct_total")
    answered = {outcome.ggrid for outcome in load.outcomes if outcome.ggrid}
    kept = rows(restored_engines, database_url)
    note(f"full disk, PostgreSQL up: {len(answered)} answered, {direct:.0f} written directly, "
         f"{len(answered - set(kept))} lost")  # fmt: skip
    assert set(kept) == answered
    assert set(kept.values()) == {1}
    assert await figure(product.guards[0], "mailwarden_history_dropped_total") == 0


@pytest.mark.contract("6 dropped is counted")
async def test_a_full_disk_stops_no_scan_and_no_row_is_lost_uncounted(
    disk: SmallDisk, start_own_product: Start, note: Note, restored_engines: Engines, database_url: str
) -> None:
    journal = {"folder": str(disk.folder / "journal"), "minFreeBytes": 0}
    product = start_own_product({**STEADY, "journal": journal})
    full = threading.Event()
    async with submitting(product, clients=6) as load:
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
        await kill(restored_engines.postgresql)
        await load.wait_for_every_kind(time.monotonic())
        filling = asyncio.create_task(asyncio.to_thread(disk.keep_full, full))
        try:
            for _ in range(3):
                await load.wait_for_every_kind(time.monotonic())
        finally:
            full.set()
            await filling
        await load.wait_for_every_kind(time.monotonic())
    check_answers(load, refusals=())
    await start(restored_engines.postgresql)
    await wait_until_written(product)
    dropped = await figure(product.guards[0], "mailwarden_history_dropped_total")
    answered = {outcome.ggrid for outcome in load.outcomes if outcome.ggrid}
    kept = rows(restored_engines, database_url)
    note(f"full disk: {len(answered)} answered, {len(kept)} in history, {dropped:.0f} counted as dropped")
    assert set(kept) <= answered
    assert set(kept.values()) == {1}
    assert len(answered) - len(kept) == dropped
