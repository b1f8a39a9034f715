"""The baseline documents its tables. Later migrations only add: processes of the version before continue to work."""

import re

import pytest

from mailwarden.database.migrations import FOLDER, ORDER, known_migrations

BASELINE = FOLDER / "0001_baseline"
# The comment above a table: what a row is, who writes it, and what deletes it.
_COMMENT = re.compile(r"^-- Row: .+\n(?:-- .+\n)*-- Written by: .+\n(?:-- .+\n)*-- Deleted by: ", re.MULTILINE)
_TABLE = re.compile(r"^((?:--.*\n)*)CREATE (?:UNLOGGED )?TABLE (\w+) \(", re.MULTILINE)
# A statement that breaks a process of an older version needs this line, with the first version that can do without.
MARKER = re.compile(r"^-- safe after: \d+\.\d+\.\d+$", re.MULTILINE)
BREAKING = {
    "drops": re.compile(r"\bDROP\s+(?:TABLE|COLUMN|FUNCTION|VIEW|TRIGGER|TYPE|SCHEMA|DEFAULT)\b", re.IGNORECASE),
    "renames": re.compile(r"\bRENAME\b", re.IGNORECASE),
    "changes a type": re.compile(r"\bALTER\s+COLUMN\s+\S+\s+(?:SET\s+DATA\s+)?TYPE\b", re.IGNORECASE),
    "requires a value": re.compile(r"\bSET\s+NOT\s+NULL\b", re.IGNORECASE),
    "adds a rule to existing rows": re.compile(r"\bADD\s+(?:CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN)\b", re.IGNORECASE),
    "removes rows": re.compile(r"\bTRUNCATE\b|\bDELETE\s+FROM\b", re.IGNORECASE),
}
_ADDED_COLUMN = re.compile(r"\bADD\s+COLUMN\b([^;]*?)(?=,\s*ADD\b|;|$)", re.IGNORECASE)


def problems(sql: str) -> list[str]:
    """Return why a migration needs the marker."""
    if MARKER.search(sql):
        return []
    text = re.sub(r"--[^\n]*", "", sql)
    found = [name for name, pattern in BREAKING.items() if pattern.search(text)]
    columns = [column.upper() for column in _ADDED_COLUMN.findall(text)]
    if any("NOT NULL" in column and "DEFAULT" not in column for column in columns):
        found.append("adds a column that older versions do not fill")
    return found


def test_the_order_of_the_baseline_names_every_file_once() -> None:
    ordered = (BASELINE / ORDER).read_text("utf-8").split()
    assert sorted(ordered) == sorted(path.name for path in BASELINE.glob("*.sql"))


def test_every_table_of_the_baseline_says_what_a_row_is_who_writes_it_and_what_deletes_it() -> None:
    tables = _TABLE.findall(known_migrations()[0].sql)
    assert len(tables) > 40
    assert [name for comment, name in tables if not _COMMENT.search(comment)] == []


def test_migrations_only_add_or_name_the_version_after_which_they_are_safe() -> None:
    later = {each.name: problems(each.sql) for each in known_migrations()[1:]}
    assert {name: found for name, found in later.items() if found} == {}


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE lists;",
        "ALTER TABLE lists DROP COLUMN name;",
        "ALTER TABLE lists RENAME COLUMN name TO title;",
        "ALTER TABLE lists ALTER COLUMN name TYPE varchar(9);",
        "ALTER TABLE lists ALTER COLUMN name SET NOT NULL;",
        "ALTER TABLE lists ADD CONSTRAINT short CHECK (length(name) < 9);",
        "DELETE FROM lists;",
        "ALTER TABLE lists ADD COLUMN a int NOT NULL;",
        "ALTER TABLE lists ADD COLUMN a int NOT NULL DEFAULT 0, ADD COLUMN b int NOT NULL;",
    ],
)
def test_a_breaking_statement_is_found(sql: str) -> None:
    assert problems(sql) != []
    assert problems(f"-- safe after: 1.1.0\n{sql}") == []


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE notes (id int PRIMARY KEY, text text NOT NULL CHECK (text <> ''));",
        "ALTER TABLE lists ADD COLUMN a int, ADD COLUMN b int NOT NULL DEFAULT 0;",
        "CREATE INDEX lists_by_name ON lists (name); -- DROP TABLE in a comment",
    ],
)
def test_an_addition_is_accepted(sql: str) -> None:
    assert problems(sql) == []
