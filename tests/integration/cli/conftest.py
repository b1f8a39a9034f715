"""Commands that need the key which kept messages are sealed with: a folder that has it, and a way to run them."""

import json
from pathlib import Path

import pytest

from mailwarden.cli.main import main
from tests.integration.cli.key import KEY


@pytest.fixture
def folder(database_url: str, tmp_path: Path) -> Path:
    """Return a configuration folder with the key that kept messages are sealed with."""
    file = tmp_path / "config" / "abby" / "abby" / "abby.yml"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"serviceProviders: {{core: {{hosts: ['https://127.0.0.1:9785']}}}}\ndatabase: {{url: '{database_url}'}}\n"
    )
    secret = tmp_path / "config" / "secrets" / "contents"
    secret.parent.mkdir()
    secret.write_text(KEY)
    return tmp_path / "config"


@pytest.fixture
def run(request, folder, capsys):
    """Run the command of the file and return what it printed, as JSON where it says so."""

    def run_command(*words, code=0):
        assert main([request.module.COMMAND, *map(str, words), "--config", str(folder)]) == code
        seen = capsys.readouterr()
        return json.loads(seen.out) if "json" in words else seen

    return run_command
