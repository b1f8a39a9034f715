"""Wording: enforced scopes hold no word of the table `workshop/measure/style.toml`, and every row of it works."""

from functools import cache

import pytest

from tests.conventions.project_files import ROOT
from tests.tables import every
from workshop.measure.style import Text, Word, findings_in, is_in, load_table, texts

TABLE = load_table()


@cache
def every_text() -> tuple[Text, ...]:
    return tuple(texts(ROOT))


@pytest.mark.slow
def test_enforced_scopes_have_no_finding() -> None:
    inside = [text for text in every_text() if any(is_in(scope, text) for scope in TABLE.enforced)]
    assert [str(finding) for text in inside for finding in findings_in(TABLE, text)] == []


@pytest.mark.slow
def test_every_enforced_scope_holds_text() -> None:
    assert [scope for scope in TABLE.enforced if not any(is_in(scope, text) for text in every_text())] == []


def test_a_row_finds_its_example() -> None:
    def check(word: Word) -> None:
        text = Text("docs", "page.md", 1, word.example)
        assert word.better in [finding.better for finding in findings_in(TABLE, text)]

    every(TABLE.words, check, lambda word: word.example)


@pytest.mark.parametrize(
    "text",
    [
        "guard returns 503 while PostgreSQL is down.",
        "The report shows what is wrong.",
        "What is a tenant?",
        "DKIM signs the message; sign in to the console.",
        "In-house mail is delivered right away.",
    ],
)
def test_plain_wording_is_no_finding(text: str) -> None:
    assert list(findings_in(TABLE, Text("docs", "page.md", 1, text))) == []


@pytest.mark.slow
def test_every_kind_of_text_is_read() -> None:
    kinds = {"docs", "decisions", "help", "errors", "strings", "docstrings", "comments", "templates", "rules"}
    assert {text.kind for text in every_text()} == kinds
