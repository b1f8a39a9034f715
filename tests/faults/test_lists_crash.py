"""PostgreSQL killed again and again under writes: what was acknowledged is there, and nothing is partially applied."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.faults.conftest import STEADY, Note, Start
from tests.faults.guard_status import figure
from tests.faults.list_calls import FULL, NO_RATE_LIMIT, ListCaller, make_key, open_session, rows_of
from tests.faults.load import kill, start
from workshop.rig.caller import NoAnswerError
from workshop.rig.engines import Engines
from workshop.rig.product import Product

pytestmark = pytest.mark.slow

KILLS = 20 if FULL else 3
WRITERS = 16
SIZE = 500
LISTS = ("url-block", "sender-block")
BACK_SECONDS = 20.0


@dataclass(slots=True)
class Batch:
    """The entries of one call, used by no other add: all of them are there, or none."""

    number: int
    list_name: str
    sizes: set[int] = field(default_factory=lambda: {0, SIZE})  # what may be found of them
    deleting: bool = False
    vanished: bool = False  # the delete of an acknowledged add did not find it

    @property
    def name(self) -> str:
        return f"b{self.number:06}"

    @property
    def entries(self) -> list[str]:
        return [f"{self.name}x{number:03}.crash.example" for number in range(SIZE)]


@dataclass(slots=True)
class Ledger:
    """Every call that was made, and what it was answered."""

    batches: list[Batch] = field(default_factory=list)
    acknowledged: int = 0
    in_doubt: int = 0

    async def write_on(self, caller: ListCaller, writer: int, stopped: asyncio.Event) -> None:
        """Add batch after batch, and delete some again, until told to stop."""
        chance = random.Random(writer)
        kept: list[Batch] = []
        while not stopped.is_set():
            if kept and chance.random() < 0.4:
                await self._delete(caller, kept.pop(chance.randrange(len(kept))))
            else:
                batch = Batch(len(self.batches), chance.choice(LISTS))
                self.batches.append(batch)
                if await self._call(caller, "addEntries", batch, [{"entry": entry} for entry in batch.entries]):
                    batch.sizes = {SIZE}
                    kept.append(batch)

    async def _delete(self, caller: ListCaller, batch: Batch) -> None:
        batch.deleting, batch.sizes = True, {0, SIZE}
        if await self._call(caller, "deleteEntries", batch, batch.entries):
            batch.sizes = {0}

    async def _call(self, caller: ListCaller, operation: str, batch: Batch, entries: object) -> bool:
        """Make a call; return whether it was acknowledged. A refusal leaves in doubt whether it was committed."""
        try:
            answer = await caller.call(operation, listName=batch.list_name, entries=entries)
        except NoAnswerError:
            answer = None
        if answer is not None and answer.status == 200:
            batch.vanished = batch.vanished or answer.modified != SIZE
            self.acknowledged += 1
            return True
        assert answer is None or (answer.status, answer.error) == (503, "storage_unavailable"), str(answer)
        assert answer is None or int(answer.headers["Retry-After"]) >= 1
        self.in_doubt += 1
        await asyncio.sleep(0.05)
        return False


async def write_through_kills(product: Product, engines: Engines, key: str, kills: int) -> tuple[Ledger, list[float]]:
    """Kill PostgreSQL so often under a load of writes; return what was written, and how long each outage lasted."""
    ledger, stopped, outages = Ledger(), asyncio.Event(), []
    chance = random.Random(kills)
    async with open_session(product, patience=15.0) as session, asyncio.TaskGroup() as group:
        caller = ListCaller(session, product.url, key)
        for writer in range(WRITERS):
            group.create_task(ledger.write_on(caller, writer, stopped))
        for _ in range(kills):
            stop_log_writer(engines)
            await wait_for_writes(ledger, 20)
            await asyncio.sleep(chance.random() * 0.5)
            began = time.monotonic()
            await kill(engines.postgresql)
            await start(engines.postgresql)
            await wait_for_writes(ledger, 1)
            outages.append(time.monotonic() - began)
        stopped.set()
    return ledger, outages


def stop_log_writer(engines: Engines) -> None:
    """Leave writing the log to the commits that wait for it: what no commit waited for is in memory alone.

    It is stopped where it waits for its next round: stopped in the midst of one, it would keep the lock of the log,
    and no commit would ever end.
    """
    query = "SELECT pid, wait_event FROM pg_stat_activity WHERE backend_type = 'walwriter'"
    end = time.monotonic() + BACK_SECONDS
    while time.monotonic() < end:
        process = int(engines.postgresql.execute(query).split("|")[0])
        os.kill(process, signal.SIGSTOP)
        if engines.postgresql.execute(query) == f"{process}|WalWriterMain":
            return
        os.kill(process, signal.SIGCONT)
    raise AssertionError("the log writer of PostgreSQL was never seen waiting")


async def wait_for_writes(ledger: Ledger, count: int) -> None:
    wanted = ledger.acknowledged + count
    end = time.monotonic() + BACK_SECONDS
    while ledger.acknowledged < wanted:
        assert time.monotonic() < end, "no write was acknowledged any more"
        await asyncio.sleep(0.005)


@dataclass(frozen=True, slots=True)
class Found:
    """What PostgreSQL holds of each batch."""

    entries: Counter[str]
    changes: Counter[str]

    def lost(self, ledger: Ledger) -> list[str]:
        """Name the batches that are not as they were acknowledged; one is deleted only after its add was."""
        return [
            batch.name
            for batch in ledger.batches
            if batch.vanished
            or self.entries[batch.name] not in batch.sizes
            or (batch.deleting and not self.changes[batch.name])
        ]

    def torn(self, ledger: Ledger) -> Iterator[str]:
        """Name the batches that are there in part, and those whose changes do not tell what happened."""
        for batch in ledger.batches:
            found, changes = self.entries[batch.name], self.changes[batch.name]
            if found not in {0, SIZE} or changes not in ({1} if found else {0, 2} if batch.deleting else {0}):
                yield f"{batch.name}: {found} entries, {changes} changes, deleting {batch.deleting}"


def find(engines: Engines, database_url: str) -> Found:
    entries = rows_of(
        engines, database_url, "SELECT left(entry, 7), count(*) FROM list_entries GROUP BY left(entry, 7)"
    )
    changes = rows_of(
        engines,
        database_url,
        f"""SELECT left(entries[1], 7), count(*) FROM list_changes
            WHERE cardinality(entries) = {SIZE} AND left(entries[1], 7) = ALL (
                SELECT left(entry, 7) FROM unnest(entries) AS entry)
            GROUP BY 1""",
    )
    return Found(
        Counter({name: int(count) for name, count in entries}), Counter({name: int(count) for name, count in changes})
    )


async def prepare(start_own_product: Start, database_url: str) -> tuple[Product, str]:
    product = start_own_product(STEADY, abby={**NO_RATE_LIMIT, "database": {"url": database_url, "poolSize": 16}})
    return product, await make_key(product, database_url, "writer")


@pytest.mark.contract("4 all or nothing", "4 200 only after commit")
async def test_acknowledged_writes_survive_kills_of_postgresql_completely(
    start_own_product: Start, note: Note, restored_engines: Engines, database_url: str
) -> None:
    product, key = await prepare(start_own_product, database_url)
    ledger, outages = await write_through_kills(product, restored_engines, key, KILLS)
    found = find(restored_engines, database_url)
    lost, torn = found.lost(ledger), list(found.torn(ledger))
    note(
        f"PostgreSQL killed {KILLS} times under {WRITERS} writers: {ledger.acknowledged} calls of {SIZE} acknowledged, "
        f"{ledger.in_doubt} in doubt, {len(lost)} lost, {len(torn)} partially applied; writes went on after "
        f"{max(outages):.1f} s at most"
    )
    assert not lost
    assert not torn
    counters = rows_of(restored_engines, database_url, "SELECT name, entries FROM lists")
    kept = dict.fromkeys(LISTS, 0)
    for batch in ledger.batches:
        kept[batch.list_name] += found.entries[batch.name]
    assert {name: int(count) for name, count in counters} == kept
    assert audited(restored_engines, database_url) == sum(found.changes.values())
    await check_replica(product, sum(kept.values()))
    async with open_session(product) as session:
        caller = ListCaller(session, product.url, key)
        assert {name: len((await caller.stream(name)).lines) for name in LISTS} == kept


def audited(engines: Engines, database_url: str) -> int:
    [[count]] = rows_of(engines, database_url, "SELECT count(*) FROM audit WHERE action LIKE 'lists.%'")
    return int(count)


async def check_replica(product: Product, entries: int) -> None:
    """The guard's replica comes to hold what PostgreSQL holds, whatever it saw before a kill."""
    end = time.monotonic() + BACK_SECONDS
    while (seen := await figure(product.guards[0], "mailwarden_lists_entries")) != entries:
        assert time.monotonic() < end, f"the replica has {seen:.0f} entries, PostgreSQL {entries}"
        await asyncio.sleep(0.2)
