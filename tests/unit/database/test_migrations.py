"""The numbered files of SQL."""

from pathlib import Path

import pytest

from mailwarden.database.migrations import known_migrations
from mailwarden.errors import CommandError


def test_the_migrations_are_numbered_without_a_gap() -> None:
    assert [migration.name[:4] for migration in known_migrations()][:2] == ["0001", "0002"]


@pytest.mark.parametrize("names", [["0002_b"], ["0001_a", "0003_c"], ["0001_a", "0001_b"], ["0001 a"], ["first"]])
def test_a_gap_a_double_or_a_strange_name_is_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / f"{name}.sql").write_text("SELECT 1")
    with pytest.raises(CommandError):
        known_migrations(tmp_path)
