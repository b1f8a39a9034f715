"""`mailwarden history resend`: rows that PostgreSQL rejected are written once their cause is gone, and none is lost."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from mailwarden.cli.main import main
from mailwarden.database.pool import Database
from mailwarden.journal.format import Record
from mailwarden.journal.losses import Losses
from mailwarden.journal.put_aside import REJECTED
from mailwarden.journal.records import encode
from mailwarden.journal.rejected import CLAIMED, claimed_rows
from mailwarden.model.record import FinishedRequest
from mailwarden.telemetry.metrics import Metrics
from tests.samples.finished import finished_request

REFUSE = (
    """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.subject = 'refused' THEN RAISE EXCEPTION 'too long' USING ERRCODE = '22001'; END IF; RETURN NEW; END $$""",
    "CREATE TRIGGER refuse BEFORE INSERT ON history FOR EACH ROW EXECUTE FUNCTION refuse()",
)
ALLOW = ("DROP TRIGGER refuse ON history", "DROP FUNCTION refuse")


@pytest.fixture
def folder(database_url: str, tmp_path: Path) -> Path:
    """Return a configuration folder of a guard, whose journal is in the folder `journal`."""
    file = tmp_path / "guard" / "core" / "guard.yml"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"scanSources: {{restApi: {{}}}}\ndatabase: {{url: '{database_url}'}}\njournal: {{folder: journal}}\n"
        "engines: {rspamd: {address: 'tcp:127.0.0.1:11333'}, clamav: {address: 'tcp:127.0.0.1:3310'}}\n"
    )
    (tmp_path / "journal").mkdir(mode=0o700)
    return tmp_path


def put_aside(folder: Path, *requests: FinishedRequest) -> None:
    losses = Losses(folder / "journal", Metrics())
    for number, request in enumerate(requests):
        losses.reject(Record(number, 1, encode(request)), "DataError: earlier")


def resend(folder: Path) -> int:
    return main(["history", "resend", "--config", str(folder)])


def run(database_url: str, *statements: str) -> int:
    """Run statements; return the number of rows in history, each with its event."""

    async def ask() -> int:
        database = Database(database_url, pool_size=1)
        async with database.connection() as connection:
            for statement in statements:
                await connection.execute(statement)
            rows = cast("int", await connection.fetchval("SELECT count(*) FROM history"))
            assert await connection.fetchval("SELECT count(*) FROM events WHERE type = 'message.scanned'") == rows
        await database.close()
        return rows

    return asyncio.run(ask())


def test_rejected_rows_are_stored_once(folder: Path, database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    requests = [finished_request() for _ in range(3)]
    put_aside(folder, *requests, requests[0])
    assert resend(folder) == 0
    assert capsys.readouterr().out.endswith("\n4 rows: 4 stored, 0 rejected again.\n")
    assert run(database_url) == 3
    assert not list((folder / "journal").glob("rejected*.jsonl"))
    assert resend(folder) == 0
    assert capsys.readouterr().out == "No rejected rows.\n"


def test_rows_that_fail_again_stay_with_the_new_reason(
    folder: Path, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(database_url, *REFUSE)
    put_aside(folder, *(finished_request(subject="refused" if n == 1 else "fine") for n in range(4)))
    file = folder / "journal" / REJECTED
    with file.open("ab") as append:
        append.write(b'{"torn": \n')
    assert resend(folder) == 1
    out = capsys.readouterr().out
    assert "\n5 rows: 3 stored, 2 rejected again.\n" in out
    assert "too long" in out
    assert "the line is unreadable" in out
    assert len(file.read_bytes().splitlines()) == 2
    assert file.stat().st_mode & 0o777 == 0o600
    run(database_url, *ALLOW)
    assert resend(folder) == 1
    assert run(database_url) == 4
    assert file.read_bytes() == b'{"torn": \n'


def test_an_interrupted_resend_starts_again(folder: Path, database_url: str) -> None:
    put_aside(folder, finished_request(), finished_request())
    assert main(["history", "resend", "--config", str(folder), "--database-url", "postgresql://n@127.0.0.1:1/n"]) == 2
    assert (folder / "journal" / CLAIMED).exists()
    put_aside(folder, finished_request())  # by guard, meanwhile
    assert resend(folder) == 0
    assert run(database_url) == 2
    assert resend(folder) == 0
    assert run(database_url) == 3


def test_a_second_resend_is_refused_meanwhile(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_aside(folder, finished_request())
    with claimed_rows(folder / "journal"):
        assert resend(folder) == 2
    assert "Another `mailwarden history resend`" in capsys.readouterr().err


def test_another_user_is_told_to_become_the_owner(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_aside(folder, finished_request())
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert resend(folder) == 2
    assert "runuser -u mailwarden" in capsys.readouterr().err
    assert (folder / "journal" / REJECTED).exists()
