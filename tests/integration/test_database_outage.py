"""PostgreSQL killed, or refusing rows, while history is written: nothing acknowledged is lost."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from mailwarden.database.pool import Database
from mailwarden.events.scanned import ScannedEvents
from mailwarden.history.opening import open_history
from mailwarden.journal.put_aside import REJECTED
from mailwarden.model.outcome import Judgement, Verdict
from mailwarden.model.scope import Scope
from mailwarden.senders.lookup import SenderHistory
from mailwarden.telemetry.metrics import Metrics
from tests.samples.finished import finished_request
from tests.unit.journal.journals import writing
from workshop.rig.engines import Engines

ALL = Scope.deployment()
TENANT = uuid4()
GOOD = Judgement(Verdict.CLEAN, "Nothing was found.", (), {}, ())
ROWS = 5_000

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def running_again(engines: Engines) -> Iterator[None]:
    yield
    if not engines.postgresql.running:
        engines.postgresql.start()


async def test_rows_of_an_outage_are_all_written_once(database: Database, engines: Engines, tmp_path: Path) -> None:
    store = open_history(database, ScannedEvents())
    senders = SenderHistory(store.senders)
    requests = [finished_request(TENANT, judgement=GOOD) for _ in range(ROWS)]
    metrics = Metrics()
    async with writing(tmp_path, store, senders, store.campaigns, metrics=metrics, seconds=60.0) as journal:
        for start in range(0, ROWS, 50):
            assert await journal.append(requests[start : start + 50])
            if start == 500:
                engines.postgresql.kill()
        assert journal.waiting > ROWS - 1_000
        await asyncio.to_thread(engines.postgresql.start)
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM history") == ROWS
        assert await connection.fetchval("SELECT count(*) FROM events WHERE type = 'message.scanned'") == ROWS
        assert await connection.fetchval("SELECT max(messages) FROM relationships") == ROWS
    for request in requests[::500]:
        found = await store.find(ALL, request.ggrid)
        assert found is not None
        assert replace(found, campaign=None) == request
    assert f"mailwarden_history_written_total {ROWS}.0" in metrics.page().decode()


async def test_a_bad_row_is_put_aside_and_the_others_are_written(database: Database, tmp_path: Path) -> None:
    async with database.connection() as connection:
        await connection.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                                 "IF NEW.subject = 'refused' THEN RAISE EXCEPTION SQLSTATE '22001'; END IF; "
                                 "RETURN NEW; END $$")  # fmt: skip
        await connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON history FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    store, senders = open_history(database, ScannedEvents()), SenderHistory(open_history(database).senders)
    requests = [finished_request(TENANT, subject="refused" if n in (7, 99) else "fine", judgement=GOOD)
                for n in range(150)]  # fmt: skip
    async with writing(tmp_path, store, senders) as journal:
        await journal.append(requests)
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM history") == 148
        assert await connection.fetchval("SELECT count(*) FROM events WHERE type = 'message.scanned'") == 148
        assert await connection.fetchval("SELECT max(messages) FROM relationships") == 148
    aside = [json.loads(line)["record"]["request"]["ggrid"] for line in (tmp_path / REJECTED).read_text().splitlines()]
    assert aside == [str(requests[7].ggrid), str(requests[99].ggrid)]


async def test_rows_wait_while_the_server_refuses_to_write(database: Database, tmp_path: Path) -> None:
    async with database.connection() as connection:
        await connection.execute("ALTER TABLE history RENAME TO history_away")
    store, requests = open_history(database), [finished_request() for _ in range(30)]
    async with writing(tmp_path, store) as journal:
        await journal.append(requests)
        await asyncio.sleep(0.5)
        assert journal.waiting == 30
        async with database.connection() as connection:
            await connection.execute("ALTER TABLE history_away RENAME TO history")
    assert not (tmp_path / REJECTED).exists()
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM history") == 30
