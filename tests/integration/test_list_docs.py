"""What the pages about lists tell people to paste works as pasted."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mailwarden_client import Client, NewEntry
from workshop.rig.engines import Engines
from workshop.rig.product import Product, install_product

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True)
class Workplace:
    """A folder like the one of `make run`, with abby alone in it."""

    folder: Path
    product: Product

    def paste(self, text: str, program: list[str], key: str = "") -> str:
        here = text.replace("https://127.0.0.1:9081", self.product.url)
        environment = {**os.environ, "MAILWARDEN_API_KEY": key}
        done = subprocess.run(
            [*program, here], check=False, capture_output=True, text=True, cwd=self.folder, timeout=120, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def key(self) -> str:
        words = ("keys", "create", "test", "--global", "--scope", "lists:read", "--scope", "lists:write")
        return self.paste(f".venv/bin/mailwarden {' '.join(words)} --config run/config", ["bash", "-c"]).strip()


@pytest.fixture
def workplace(engines: Engines, database_url: str, tmp_path: Path) -> Iterator[Workplace]:
    product = install_product(tmp_path / "run", engines, database_url)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    product.abby.start()
    try:
        yield Workplace(tmp_path, product)
    finally:
        product.abby.stop()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.long
def test_the_cookbook_works_as_pasted(workplace):
    shown = workplace.paste("set -e\n" + "\n".join(blocks("soar-cookbook.md", "sh")), ["bash", "-o", "pipefail", "-c"])

    assert "=> url-block, global: evidence of phishing" in shown
    assert '"deletedEntries": 1' in shown
    assert "20,000 added or updated." in shown
    assert "unchanged      20,0" in shown
    (script,) = blocks("soar-cookbook.md", "python")
    assert "co.uk" in workplace.paste(script, [sys.executable, "-c"], workplace.key())
    with Client(workplace.product.url, workplace.key(), ca=workplace.product.ca) as client:
        assert {"a@scam.example", "b@scam.example"} <= {each.entry for each in client.entries("sender-block")}


def test_the_calls_of_the_list_api_work_as_pasted(workplace):
    shown = workplace.paste("set -e\n" + "\n".join(blocks("list-api.md", "sh")), ["bash", "-o", "pipefail", "-c"])

    assert shown.splitlines()[:2] == ['{"modifiedEntries":2}', '{"modifiedEntries":1}']
    assert len(json.loads(shown.splitlines()[2])["listFileInfos"]) == 16
    assert json.loads(shown.splitlines()[3])["entry"] == "*.scam.example"
    key = workplace.key()
    with Client(workplace.product.url, key, ca=workplace.product.ca) as client:
        for script in blocks("list-api.md", "python"):
            if "import" in script:
                workplace.paste(script, [sys.executable, "-c"], key)
            else:
                exec(script, {"client": client, "NewEntry": NewEntry})
