"""Backup and restore of PostgreSQL as docs/operating.md has it: by the superuser, and whole."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.database.migrations import pending
from mailwarden.database.pool import Database
from mailwarden.lists.service import Lists
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Actor
from mailwarden.wire.lists import AddEntries
from mailwarden.wire.strict_json import convert
from rig.engines import Engines
from rig.postgresql import SUPERUSER
from rig.programs import find_postgresql

RESTORED = "test_restored"
ENTRIES = "SELECT count(*) FROM list_entries"


@pytest.fixture
def restored(engines: Engines) -> Iterator[str]:
    yield engines.postgresql.create_database(RESTORED)
    engines.postgresql.drop_database(RESTORED)


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(find_postgresql() / program), *words], check=False, capture_output=True, text=True, timeout=120
    )


async def test_a_superuser_dump_restores_completely_and_the_owner_cannot_dump(
    database_url: str, restored: str, engines: Engines, tmp_path: Path
):
    database = Database(database_url)
    body = convert({"listName": "sender-block", "entries": [{"entry": "billing@scam.example"}]}, AddEntries)
    lists = Lists(ListStore(database, database))
    await lists.add_entries(ListScope(), "sender-block", body.entries, Actor("cli:ada"))
    await database.close()

    refused = run("pg_dump", "--format=custom", f"--file={tmp_path}/owner.dump", database_url)
    assert refused.returncode != 0
    assert "row-level security" in refused.stderr

    def by_superuser(url: str) -> str:
        return url.replace("mailwarden@", f"{SUPERUSER}@")

    dumped = run("pg_dump", "--format=custom", f"--file={tmp_path}/whole.dump", by_superuser(database_url))
    assert dumped.returncode == 0, dumped.stderr
    back = run("pg_restore", "--exit-on-error", f"--dbname={by_superuser(restored)}", f"{tmp_path}/whole.dump")
    assert back.returncode == 0, back.stderr

    assert engines.postgresql.execute(ENTRIES, RESTORED) == "1"
    assert await pending(restored) == []
    again = Database(restored)
    kept = await Lists(ListStore(again, again)).add_entries(ListScope(), "sender-block", body.entries, Actor("cli:ada"))
    await again.close()
    assert kept == 1, "the product's own role writes to what was restored"
