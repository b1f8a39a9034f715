"""Whoever keeps messages is killed meanwhile: what was said to be kept is kept, byte for byte, and nothing else is."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.pool import Database
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.blob_store import ABANDONED, PARTS, FilesystemStore
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.retention import QuarantineRetention
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from tests.faults import quarantine_process

pytestmark = pytest.mark.slow

KILLS = 200 if os.environ.get("MAILWARDEN_FULL") == "1" else 4
ROOT = Path(__file__).parents[2]
ALL = Scope.deployment()


def killed(url: str, folder: Path, tenant: UUID, first: int, seconds: float) -> Iterator[tuple[int, UUID]]:
    """Let a process keep messages, kill it in the middle, and yield what it said to have kept."""
    words = [sys.executable, "-m", quarantine_process.__name__, url, str(folder), str(tenant), str(first)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()  # it is at work
        time.sleep(seconds)
        process.kill()
        lines = [line, *process.stdout.read().splitlines(keepends=True)]
    for said in lines:
        if said.endswith("\n"):
            number, uid = said.split()
            yield int(number), UUID(uid)


async def test_acknowledged_messages_survive_kill_9_and_others_leave_nothing(database_url: str, tmp_path: Path):
    database, folder = Database(database_url), tmp_path / "vault"
    (tenant,) = [each.uid for each in await TenantStore(database).list(ALL)]
    vault, store = Vault(FilesystemStore(folder), quarantine_process.KEY), QuarantineStore(database)
    retention = QuarantineRetention(vault, RetentionStore(database), ReleaseStore(database), RetentionDays())
    chance = random.Random(24)
    kept: dict[UUID, int] = {}
    for turn in range(KILLS):
        said = dict(killed(database_url, folder, tenant, turn * 100_000, chance.uniform(0.0, 0.5)))
        kept |= {uid: number for number, uid in said.items()}
        for uid in list(said.values())[::4]:  # bodies that go while the same are kept again
            await store.delete(ALL, uid, None, Actor("test"))
            del kept[uid]
        await retention.clear()
    assert len(kept) > KILLS

    for uid, number in kept.items():
        held = await store.find(ALL, uid)
        assert held.address is not None
        found = await vault.get(tenant, held.address, tmp_path)
        assert found.data() == quarantine_process.message(number)
        found.close()
    assert await retention.find_missing() == 0

    long_ago = time.time() - ABANDONED - 60
    for part in (folder / PARTS).iterdir():
        os.utime(part, (long_ago, long_ago))
    await retention.find_orphans(timedelta(seconds=-60))
    await retention.clear()
    bodies = {body.address async for body in vault.bodies()}
    assert list((folder / PARTS).iterdir()) == []
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT DISTINCT address FROM quarantine WHERE address IS NOT NULL")
    assert bodies == {row["address"] for row in rows}, "every row has its bytes, and no bytes are without a row"
    await database.close()
