"""`mailwarden init` writes the scan source for Postfix where it is asked to."""

from pathlib import Path

import pytest

from mailwarden.cli.main import main
from mailwarden.guard.config import PATH, GuardConfig
from mailwarden.settings.reader import read


@pytest.mark.parametrize("mode", ["beforeQueue", "afterQueue"])
def test_smtp_is_enabled_in_the_chosen_mode(tmp_path: Path, mode: str) -> None:
    assert main(["init", str(tmp_path / "made"), "--no-database", "--smtp", mode]) == 0
    smtp = read(tmp_path / "made" / PATH, GuardConfig).scan_sources.smtp
    assert smtp is not None
    assert (smtp.mode, smtp.listen.port, smtp.next_hop) == (mode, 10025, "127.0.0.1:10026")


def test_smtp_is_disabled_by_default(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "made"), "--no-database"]) == 0
    assert read(tmp_path / "made" / PATH, GuardConfig).scan_sources.smtp is None
