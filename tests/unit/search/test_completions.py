"""Completions of a search that is being typed: operators, closed values, and values of recent messages."""

import pytest

from mailwarden.search.completions import MAX_SHOWN, MEANINGS, completions
from mailwarden.search.query import OPERATORS
from mailwarden.search.suggestions import Vocabulary

KNOWN = Vocabulary(
    messages=40,
    lexemes={"sinvoice": 9, "snordlicht": 2, "fnordlicht": 30, "fbjorn": 4, "frankfurt": 1, "trenee": 3},
    senders={"billing@rechnung.nordlicht.example": 30, "alice@sender.example": 2, 'x"y z@q.example': 1, "n\x00o": 9},
    recipients={"bob@acme.example": 40, "renee.bell@acme.example": 3},
    hosts={"login.nordwind.example": 1},
    tags={"url.display-mismatch": 5, "url.new": 1},
)
TENANTS = ("Acme Ltd", "bank", 'a "b"')


def texts(typed: str) -> list[str]:
    return [each.text for each in completions(typed, KNOWN, TENANTS).found]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("f", ["from:"]),
        ("-f", ["-from:"]),
        ("ver", ["verdict:"]),
        ("is:", ["is:held", "is:released", "is:reported", "is:undecided"]),
        ("is:re", ["is:released", "is:reported"]),
        ("-is:h", ["-is:held"]),
        ("verdict:sp", ["verdict:spoof", "verdict:spam"]),
        ("verdict:spam,ph", ["verdict:spam,phishing"]),
        ("decision:q", ["decision:quarantine"]),
        ("tag:url.d", ["tag:url.display-mismatch"]),
        ("tenant:ac", ['tenant:"Acme Ltd"']),
        ('tenant:"acme l', ['tenant:"Acme Ltd"']),
        ("from:ali", ["from:alice@sender.example"]),
        ("from:sender", ["from:alice@sender.example", "from:sender.example"]),
        ("to:bell", ["to:renee.bell@acme.example"]),
        ("url:nordw", ["url:login.nordwind.example"]),
        ("subject:inv", ["subject:invoice"]),
        ("hello Björ", ["bjorn"]),
        ("ip:1", []),
        ("nothing:x", []),
        ("", []),
        ("hello ", []),
    ],
)
def test_the_last_term_is_completed(typed: str, expected: list[str]) -> None:
    assert texts(typed) == expected


def test_words_addresses_and_domains_complete_a_word() -> None:
    found = texts("hello nord")
    assert found[:2] == ["nordlicht", "billing@rechnung.nordlicht.example"]
    assert "nordlicht.example" in found
    assert len(found) <= MAX_SHOWN


def test_the_start_is_where_the_term_begins() -> None:
    assert completions("hello  -from:al", KNOWN).start == 7
    assert completions('subject:"gift car', KNOWN).start == 0
    assert completions("x" * 501, KNOWN).found == ()


def test_values_that_would_break_a_search_are_left_out() -> None:
    assert texts("from:no") == ["from:billing@rechnung.nordlicht.example", "from:nordlicht.example",
                                "from:rechnung.nordlicht.example"]  # fmt: skip
    assert texts("from:x") == []
    assert texts("tenant:a") == ['tenant:"Acme Ltd"']


def test_every_operator_has_a_meaning() -> None:
    assert list(MEANINGS) == list(OPERATORS)
