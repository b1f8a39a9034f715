"""The numbered migrations."""

from pathlib import Path

import pytest

from mailwarden.database.migrations import ORDER, Migration, known_migrations
from mailwarden.errors import CommandError


def test_the_first_migration_is_the_baseline() -> None:
    assert known_migrations()[0].name == "0001_baseline"


def test_the_files_of_a_folder_are_one_migration_in_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "0001_baseline"
    folder.mkdir()
    (folder / ORDER).write_text("b.sql\na.sql\n")
    (folder / "a.sql").write_text("SELECT 'a';\n")
    (folder / "b.sql").write_text("SELECT 'b';\n")
    (tmp_path / "0002_next.sql").write_text("SELECT 2;")
    found = known_migrations(tmp_path)
    assert [each.name for each in found] == ["0001_baseline", "0002_next"]
    assert found[0].sql.split() == ["SELECT", "'b';", "SELECT", "'a';"]
    (folder / "a.sql").write_text("SELECT 'c';\n")
    assert known_migrations(tmp_path)[0].checksum != found[0].checksum


@pytest.mark.parametrize("names", [["0002_b"], ["0001_a", "0003_c"], ["0001_a", "0001_b"], ["0001 a"], ["first"]])
def test_a_gap_a_double_or_a_strange_name_is_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / f"{name}.sql").write_text("SELECT 1")
    with pytest.raises(CommandError):
        known_migrations(tmp_path)


def test_a_comment_may_be_corrected_and_a_statement_may_not() -> None:
    first = Migration("0001_baseline", "-- rows of tests\nCREATE TABLE a (b text -- a word\n);\n")
    corrected = Migration("0001_baseline", "CREATE TABLE a (b text -- a sentence\n);\n-- nothing more\n")
    assert corrected.checksum == first.checksum
    assert Migration("0001_baseline", "CREATE TABLE a (b int);").checksum != first.checksum
    below_an_empty_comment = [Migration("0001_baseline", f"--\nCREATE TABLE {name} ();").checksum for name in "ab"]
    assert len(set(below_an_empty_comment)) == 2
