"""`mailwarden users`, and the link that `mailwarden init` prints."""

import json
import re
from pathlib import Path

import pytest

from mailwarden.cli.main import main

LINK = r"https://localhost:9081/console/setup/[A-Za-z0-9_-]{88}"


@pytest.fixture
def run(database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def run_command(*words: str, code: int = 0) -> str:
        assert main([*words, "--config", str(tmp_path), "--database-url", database_url]) == code
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    file = tmp_path / "abby" / "abby" / "abby.yml"
    file.parent.mkdir(parents=True)
    file.write_text("serviceProviders: {core: {hosts: ['https://127.0.0.1:9785']}}\n")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "pepper").write_text("p" * 32)
    return run_command


def test_init_prints_a_link_for_the_first_person(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "made"), "--database-url", database_url]) == 0
    assert re.search(LINK, capsys.readouterr().out)
    assert main(["init", str(tmp_path / "bare"), "--no-database"]) == 0
    assert "console/setup" not in capsys.readouterr().out


def test_people_are_invited_shown_shut_out_and_let_in_again(run) -> None:
    assert re.fullmatch(LINK + "\n", run("users", "setup-link"))
    assert re.fullmatch(LINK + "\n", run("users", "invite", "--role", "analyst", "--email", "ada@company.example"))
    assert json.loads(run("users", "list", "-o", "json")) == []
    assert "NAME" in run("users", "list")
    for action in ("reset-link", "disable", "enable"):
        assert "There is no user" in run("users", action, "nobody", code=2)
    assert "needs at least one tenant" in run("users", "invite", "--role", "tenant-administrator", code=2)
    assert "no e-mail address" in run("users", "invite", "--role", "auditor", "--email", "x", code=2)
    link = json.loads(run("users", "invite", "--role", "auditor", "--url", "https://mail.example/", "-o", "json"))
    assert link["link"].startswith("https://mail.example/console/setup/")


def test_the_configured_address_is_in_the_link(run, tmp_path: Path) -> None:
    file = tmp_path / "abby" / "abby" / "abby.yml"
    file.write_text(file.read_text() + "console: {publicUrl: 'https://mail.example:9081'}\n")
    assert run("users", "setup-link").startswith("https://mail.example:9081/console/setup/")
