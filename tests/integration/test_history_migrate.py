"""`mailwarden history migrate` copies every row once, in both directions, also after it was killed."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from mailwarden.cli.main import main
from mailwarden.database.pool import Database
from mailwarden.events.scanned import ScannedEvents
from mailwarden.history.clickhouse import schema
from mailwarden.history.clickhouse.client import Clickhouse, Target
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore
from mailwarden.model.ggrid import first_ggrid, new_ggrid
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from tests.samples.finished import finished_request
from workshop.rig.clickhouse import EmbeddedClickhouse
from workshop.rig.ports import free_port

pytestmark = pytest.mark.slow

ALL = Scope.deployment()
TENANTS = (uuid4(), uuid4())
TO_CLICKHOUSE = ("--from", "postgresql", "--to", "clickhouse")
TO_POSTGRESQL = ("--from", "clickhouse", "--to", "postgresql")


@pytest.fixture
def clickhouse(tmp_path: Path) -> Iterator[EmbeddedClickhouse]:
    server = EmbeddedClickhouse(tmp_path / "clickhouse")
    server.start()
    yield server
    server.stop()


def configure(folder: Path, database_url: str, address: str, store: str, *others: str) -> None:
    file = folder / "abby" / "abby" / "abby.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f"serviceProviders: {{core: {{hosts: ['https://127.0.0.1:1']}}}}\ndatabase: {{url: '{database_url}'}}\n"
        f"history: {{store: {store}, clickhouse: {{urls: {[*others, address]}, replicated: {len(others) > 0}}}}}\n"
    )


def requests_of(number: int) -> list[FinishedRequest]:
    """Return requests of two tenants and three days, some with the same ggrid."""
    base, now = finished_request(), datetime.now(UTC)
    made = []
    for each in range(number // 2):
        moment = now - timedelta(days=each % 3, seconds=each)
        ggrid = UUID(int=first_ggrid(moment).int | (new_ggrid().int & ((1 << 62) - 1)))
        made += [replace(base, ggrid=ggrid, tenant=tenant) for tenant in TENANTS]
    return made


def migrate(folder: Path, *words: str) -> int:
    return main(["history", "migrate", *words, "--config", str(folder)])


def save(database_url: str, requests: list[FinishedRequest]) -> None:
    async def write() -> None:
        database = Database(database_url)
        store = open_history(database, ScannedEvents())
        for start in range(0, len(requests), 500):
            assert (await store.save(ALL, requests[start : start + 500])).rejected == ()
        await database.close()

    asyncio.run(write())


def run(database_url: str, statement: str) -> int:
    async def ask() -> int:
        database = Database(database_url, pool_size=1)
        async with database.connection() as connection:
            found = await connection.fetchval(statement)
        await database.close()
        return cast("int", found)

    return asyncio.run(ask())


def test_rows_go_to_clickhouse_and_back(
    clickhouse: EmbeddedClickhouse, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = requests_of(300)
    save(database_url, requests)
    events = run(database_url, "SELECT count(*) FROM events")
    configure(tmp_path, database_url, clickhouse.address, "clickhouse")
    assert main(["history", "prepare", "--config", str(tmp_path)]) == 0
    capsys.readouterr()
    for copied in (300, 0):
        assert migrate(tmp_path, *TO_CLICKHOUSE) == 0
        out = capsys.readouterr().out
        assert f"300 rows in postgresql: {copied} copied now, 0 failed." in out
        assert "rows of 2 tenants, 0 missing in clickhouse" in out
        assert "TRUNCATE history" in out
        assert clickhouse.execute("SELECT count(), uniqExact(ggrid, tenant) FROM history", "mailwarden") == "300\t300"
    run(database_url, "TRUNCATE history")
    asyncio.run(_check(database_url, clickhouse.address, requests))
    configure(tmp_path, database_url, clickhouse.address, "postgresql")
    save(database_url, requests[:10])  # rows that reach PostgreSQL before
    events += 10
    for copied in (290, 0):
        assert migrate(tmp_path, *TO_POSTGRESQL) == 0
        assert f"300 rows in clickhouse: {copied} copied now, 0 failed." in capsys.readouterr().out
    assert run(database_url, "SELECT count(*) FROM history") == 300
    assert run(database_url, "SELECT count(*) FROM events") == events
    asyncio.run(_check(database_url, "", requests))


async def _check(database_url: str, address: str, requests: list[FinishedRequest]) -> None:
    database = Database(database_url)
    client = Clickhouse(Target((address,))) if address else None
    store: HistoryStore = open_history(database, clickhouse=client)
    for request in requests[::20]:
        assert await store.find(Scope.of(request.tenant), request.ggrid) == request
    if client is not None:
        await client.close()
    await database.close()


def test_a_killed_migration_continues(
    clickhouse: EmbeddedClickhouse, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(database_url, requests_of(4_200))
    configure(tmp_path, database_url, clickhouse.address, "clickhouse")
    assert main(["history", "prepare", "--config", str(tmp_path)]) == 0
    command = [sys.executable, "-m", "mailwarden", "history", "migrate", *TO_CLICKHOUSE, "--config", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    end, rows = time.monotonic() + 60, 0
    while not rows and time.monotonic() < end:
        rows = int(clickhouse.execute("SELECT count() FROM history", "mailwarden"))
    process.kill()
    process.wait()
    rows = int(clickhouse.execute("SELECT count() FROM history", "mailwarden"))
    assert 0 < rows < 4_200
    capsys.readouterr()
    assert migrate(tmp_path, *TO_CLICKHOUSE) == 0
    assert f"4200 rows in postgresql: {4_200 - rows} copied now" in capsys.readouterr().out
    assert clickhouse.execute("SELECT count(), uniqExact(ggrid, tenant) FROM history", "mailwarden") == "4200\t4200"


def test_rows_that_fail_are_named_and_nothing_is_called_complete(
    clickhouse: EmbeddedClickhouse, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(database_url, requests_of(4))
    run(database_url, f"UPDATE history SET record = '{{}}' WHERE tenant = '{TENANTS[0]}'")
    configure(tmp_path, database_url, clickhouse.address, "clickhouse")
    assert main(["history", "prepare", "--config", str(tmp_path)]) == 0
    assert migrate(tmp_path, *TO_CLICKHOUSE) == 1
    out = capsys.readouterr().out
    assert "4 rows in postgresql: 2 copied now, 2 failed." in out
    assert f"tenant {TENANTS[0]}: 1 of 1 missing" in out
    assert "2 rows are missing in clickhouse. Delete nothing" in out
    assert "TRUNCATE" not in out


def test_rows_of_a_stale_replica_are_not_called_complete(
    clickhouse: EmbeddedClickhouse,
    database_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(tmp_path, database_url, clickhouse.address, "clickhouse")
    assert main(["history", "prepare", "--config", str(tmp_path)]) == 0
    configure(tmp_path, database_url, clickhouse.address, "postgresql", f"http://127.0.0.1:{free_port()}")
    capsys.readouterr()
    assert migrate(tmp_path, *TO_POSTGRESQL) == 2  # the other replica may have newer rows
    printed = capsys.readouterr()
    assert "does not answer: rows may be missing" in printed.err
    assert "Every row" not in printed.out
    configure(tmp_path, database_url, clickhouse.address, "postgresql")
    for states in (["is 1 s behind"], ["", "is read-only"]):  # the second is asked before the report

        async def state(client: Clickhouse, url: str, most: int, states: list[str] = states) -> str:
            assert most == 0
            return states.pop(0)

        monkeypatch.setattr(schema, "replica_state", state)
        assert migrate(tmp_path, *TO_POSTGRESQL) == 2
        printed = capsys.readouterr()
        assert "Delete nothing in ClickHouse." in printed.err
        assert "Every row" not in printed.out
        assert not states


def test_a_store_that_is_not_configured_is_refused(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(tmp_path, database_url, "http://127.0.0.1:1", "postgresql")
    assert migrate(tmp_path, *TO_CLICKHOUSE) == 2
    assert "new rows would stay behind" in capsys.readouterr().err
    assert migrate(tmp_path, "--from", "clickhouse", "--to", "clickhouse") == 2
    assert "same store" in capsys.readouterr().err
