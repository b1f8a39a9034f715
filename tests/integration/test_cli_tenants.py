"""`mailwarden database migrate` and `mailwarden tenants`, against a real PostgreSQL."""

import json
from pathlib import Path

import pytest

from mailwarden.cli.main import main


def test_tenants_are_made_and_shown(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--database-url", database_url]
    words = ["tenants", "create", "acme", "--domain", "A.example", "--domain", "b.example", "--profile", "strict"]
    assert main([*words, *where]) == 0
    capsys.readouterr()
    assert main(["tenants", "ls", "-o", "json", *where]) == 0
    acme, default = json.loads(capsys.readouterr().out)
    assert (acme["name"], acme["profile"], acme["domains"]) == ("acme", "strict", ["a.example", "b.example"])
    assert default["default"] is True
    assert main(["tenants", "ls", *where]) == 0
    assert "a.example, b.example" in capsys.readouterr().out


def test_rules_weigh_otherwise_for_a_tenant(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--database-url", database_url]
    weigh = ["tenants", "weights", "DEFAULT", *where]
    assert main([*weigh, "--set", "html.link-mismatch=3"]) == 0
    assert capsys.readouterr().out.endswith("-> 3\n")
    assert main([*weigh, "--set", "html.hidden-text=1", "-o", "json"]) == 2
    assert "There is no rule" in capsys.readouterr().err
    assert main([*weigh, "--set", "clamav.malware=1"]) == 2
    assert "A tenant may let `clamav.malware` weigh" in capsys.readouterr().err
    assert main(["tenants", "ls", "-o", "json", *where]) == 0
    assert json.loads(capsys.readouterr().out)[0]["weights"] == {"html.link-mismatch": 3}
    assert main([*weigh, "--reset"]) == 0
    assert "has no overrides" in capsys.readouterr().out
    assert main(["tenants", "weights", "nobody", *where]) == 2


def test_a_mistake_is_one_sentence_and_exit_code_2(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tenants", "create", "acme", "--domain", "localhost", "--database-url", database_url]) == 2
    assert capsys.readouterr().err.startswith("mailwarden: `localhost` cannot be a tenant's domain.")


def test_a_database_that_is_down_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["database", "migrate", "--database-url", "postgresql://nobody@127.0.0.1:1/none"]) == 2
    assert "The database is down." in capsys.readouterr().err


def test_a_migrated_database_is_up_to_date_by_the_address_in_the_configuration(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "abby" / "abby" / "abby.yml"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"serviceProviders: {{core: {{hosts: ['https://127.0.0.1:9785']}}}}\ndatabase: {{url: '{database_url}'}}\n"
    )
    assert main(["database", "migrate", "--config", str(tmp_path)]) == 0
    assert "up to date" in capsys.readouterr().out
