"""What is shipped as configuration is good configuration."""

import re

import pytest

from mailwarden.abby import config as abby
from mailwarden.guard import config as guard
from mailwarden.settings.reader import read
from mailwarden.smtp.settings import Smtp
from tests.conventions.project_files import ROOT

SHIPPED = ROOT / "deploy" / "config"


@pytest.mark.parametrize(("path", "kind"), [(abby.PATH, abby.AbbyConfig), (guard.PATH, guard.GuardConfig)])
def test_a_shipped_file_is_read(path: str, kind: type[object]) -> None:
    assert isinstance(read(SHIPPED / path, kind), kind)


def test_nothing_else_is_shipped_as_yaml() -> None:
    found = {str(file.relative_to(SHIPPED)) for file in SHIPPED.rglob("*.yml")}
    assert found == {abby.PATH, guard.PATH}


@pytest.mark.parametrize("way", ["before-queue", "after-queue"])
def test_postfix_takes_nothing_that_guard_finds_too_large(way: str) -> None:
    """Postfix adds a field of some hundred bytes for guard, and guard some thousand for Postfix."""
    room = 65_536
    folder = SHIPPED.parent / "postfix" / way
    (front,) = re.findall(r"-o message_size_limit=(\d+)", (folder / "master.cf").read_text("ascii"))
    (back,) = re.findall(r"(?m)^message_size_limit = (\d+)", (folder / "main.cf").read_text("ascii"))
    assert int(front) + room <= Smtp().max_message_size <= int(back) - room


@pytest.mark.parametrize("way", ["before-queue", "after-queue"])
def test_postfix_itself_refuses_addresses_outside_ascii_without_smtputf8(way: str) -> None:
    """Else it takes them, and behind the queue bounces what guard refuses."""
    front = (SHIPPED.parent / "postfix" / way / "master.cf").read_text("ascii").partition("\n\n127.0.0.1")[0]
    assert "    -o strict_smtputf8=yes\n" in front


@pytest.mark.parametrize(("way", "off"), [("before-queue", False), ("after-queue", True)])
def test_the_operators_own_checks_of_header_and_body_act_once(way: str, off: bool) -> None:
    """Before the queue no port but the one behind guard makes them: switched off there, they would be off."""
    back = (SHIPPED.parent / "postfix" / way / "master.cf").read_text("ascii").partition("\n127.0.0.1:10026")[2]
    assert ("no_header_body_checks" in back) is off
    assert "no_milters" in back
