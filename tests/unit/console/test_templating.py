"""Templates: every name that a screen or another template uses exists."""

import re
from pathlib import Path

from mailwarden.console.templating import TEMPLATE_FOLDER

_NAME = re.compile(r"[\"']([\w/-]+\.html)[\"']")


def test_every_template_that_is_used_exists() -> None:
    console = TEMPLATE_FOLDER.parent
    users = [path for path in console.rglob("*") if path.suffix in (".py", ".html")]
    used = {(path.name, name) for path in users for name in _NAME.findall(path.read_text())}
    assert len(used) > 100
    assert [(user, name) for user, name in sorted(used) if not Path(TEMPLATE_FOLDER, name).is_file()] == []


def test_every_template_is_used() -> None:
    users = [path for path in TEMPLATE_FOLDER.parent.rglob("*") if path.suffix in (".py", ".html")]
    used = {name for path in users for name in _NAME.findall(path.read_text())}
    assert {str(path.relative_to(TEMPLATE_FOLDER)) for path in TEMPLATE_FOLDER.rglob("*.html")} - used == set()
