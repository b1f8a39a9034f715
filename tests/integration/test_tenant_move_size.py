"""A large tenant moves there and back; MAILWARDEN_FULL=1: 50,000 list entries and 500 held messages."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailwarden.cells import move
from mailwarden.quarantine.store import QuarantineStore
from rig.engines import Engines
from tests.databases import ReusedDatabases
from tests.integration.cell_pair import ACTOR, ALL, LIST, OneCell, Pair, open_pair

FULL = bool(os.environ.get("MAILWARDEN_FULL"))
ENTRIES, HELD = (50_000, 500) if FULL else (3_000, 20)
BATCH = 500
GOAL_SECONDS = 5.0

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
async def pair(engines: Engines, reused_databases: ReusedDatabases, tmp_path: Path) -> AsyncIterator[Pair]:
    async with open_pair(engines, reused_databases, tmp_path) as opened:
        yield opened


async def bodies(cell: OneCell, pair: Pair) -> int:
    """Return how many held messages of the tenant have all their bytes in a cell."""
    store, found = QuarantineStore(cell.database), 0
    for uid in await cell.held(pair.uid):
        address = (await store.find(ALL, uid)).address
        found += address is not None and await cell.access.vault.verifies(pair.uid, address)
    return found


async def test_a_large_tenant_moves_there_and_back(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "SETTLE_SECONDS", 0.0)
    entries = {f"{number}.example" for number in range(ENTRIES)}
    for start in range(0, ENTRIES, BATCH):
        await pair.a.add(pair.uid, *sorted(entries)[start : start + BATCH])
    held = {await pair.a.hold(pair.uid, f"Subject: {number}\r\n\r\nText\r\n".encode()) for number in range(HELD)}
    for back, old, new in ((False, pair.a, pair.b), (True, pair.b, pair.a)):
        moved = await pair.move(back=back).run(ACTOR)
        assert moved.pause is not None
        assert moved.held == HELD
        assert await new.entries(pair.uid) == entries
        assert await new.held(pair.uid) == held
        assert await bodies(new, pair) == HELD
        assert await old.held(pair.uid) == set()
        figures = f"{ENTRIES:,} entries of {LIST} and {HELD} held messages: changes paused for {moved.pause:.2f} s"
        sys.stderr.write(f"move of {figures}\n")
        assert moved.pause < GOAL_SECONDS
