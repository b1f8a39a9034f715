"""`mailwarden feeds` against a real PostgreSQL: a poisoned update waits, and an operator decides."""

import json
from pathlib import Path

import pytest

from mailwarden.cli.main import main


def test_an_operator_decides_on_an_update_that_waits(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "abby" / "abby" / "abby.yml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f"serviceProviders: {{core: {{hosts: ['https://127.0.0.1:9785']}}}}\ndatabase: {{url: '{database_url}'}}\n"
        "contents: {key: contents}\n"
    )
    (tmp_path / "contents").write_text("k" * 64)
    (tmp_path / "token").write_text("Authorization: Bearer s3cret\n")
    feed = tmp_path / "feed.csv"
    feed.write_text("host,score\nthief.example,90\ngoogle.com,90\n")

    def run(*words: str, code: int = 0) -> str:
        assert main(["feeds", *words, "--config", str(tmp_path)]) == code
        printed = capsys.readouterr()
        return printed.out if code == 0 else printed.err

    assert "No feeds." in run("list")
    settings = ("--format", "csv", "--map", "value=host", "--map", "confidence=score", "--list", "url-block")
    more = ("--max-left-out", "0", "--credential-file", str(tmp_path / "token"))
    assert "absolute path" in run("add", "phish", "--source", "feed.csv", *settings, code=2)
    assert "FIELD=COLUMN" in run("add", "phish", "--source", str(feed), *settings, "--map", "url", code=2)
    assert "phish fills url-block" in run("add", "phish", "--source", str(feed), *settings, *more)
    assert "No update of phish waits" in run("approve", "phish", code=2)
    printed = run("update", "phish")
    assert "phish: waiting" in printed
    assert "waits: 1 entries are on a warning list; the bound is 0." in printed
    assert "left out: google.com (a popular domain)" in printed
    assert "waits for approval" in run("list")
    assert "rejected" in run("reject", "phish")
    assert "phish: unchanged" in run("update", "phish")
    feed.write_text("host,score\nthief.example,90\nrobber.example,90\ngoogle.com,90\n")
    run("update", "phish")
    assert "is approved: 2 entries are added" in run("approve", "phish")
    assert "phish: applied" in run("update", "phish")
    shown = json.loads(run("show", "phish", "-o", "json"))
    assert (shown["entries"], shown["hasCredential"], shown["updates"][0]["state"]) == (2, True, "applied")
    assert "s3cret" not in run("show", "phish", "-o", "json")
    assert "with 2 entries that it alone gave" in run("remove", "phish")
    assert "There is no feed `phish`" in run("show", "phish", code=2)
