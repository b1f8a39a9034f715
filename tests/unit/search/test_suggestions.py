"""Corrections of searches use the values of the same scope, and are searches themselves."""

import pytest

from mailwarden.search.query import parse_query, parse_terms
from mailwarden.search.suggestions import Vocabulary, corrections, reductions

KNOWN = Vocabulary(
    messages=40,
    lexemes={"sinvoice": 9, "snordlicht": 2, "fnordlicht": 30, "fbjorn": 4, "trenee": 3, "unordwind": 1},
    senders={"billing@rechnung.nordlicht.example": 30, "alice@sender.example": 2},
    recipients={"bob@acme.example": 40},
    hosts={"login.nordwind.example": 1},
    tags={"url.display-mismatch": 5},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nordlcht", "nordlicht"),
        ("Nórdlihct", "nordlicht"),
        ("invocie", "invoice"),
        ("from:bjron", "from:bjorn"),
        ("from:alice@sendr.example", "from:alice@sender.example"),
        ("alcie@sender.example", "alice@sender.example"),
        ("to:acmee.example", "to:acme.example"),
        ("domain:nordlicth.example", "domain:nordlicht.example"),
        ("url:login.nordwnd.example", "url:login.nordwind.example"),
        ("tag:url.display-mismatched", "tag:url.display-mismatch"),
        ('subject:"nordlicht invocie"', 'subject:"nordlicht invoice"'),
        ("nordlcht  -verdict:clean invocie", "nordlicht  -verdict:clean invoice"),
    ],
)
def test_a_value_that_does_not_occur_is_corrected(text: str, expected: str) -> None:
    found = corrections(text, KNOWN)
    assert found[0] == expected
    for each in found:
        parse_query(each)


@pytest.mark.parametrize(
    "text",
    [
        "", "nordlicht", "nord", "from:nordlicht.example", "bob@acme.example", "-nordlcht", "verdict:spam", "is:held",
        "xy", "completely", "ip:192.0.2.1", "subject:renee2024", "tenant:00000000-0000-0000-0000-000000000007",
    ],
)  # fmt: skip
def test_values_that_occur_and_unlike_values_are_left_alone(text: str) -> None:
    assert corrections(text, KNOWN) == []


def test_a_word_of_another_field_is_no_correction() -> None:
    assert corrections("to:nordlcht", KNOWN) == []
    assert corrections("subject:bjron", KNOWN) == []


def test_two_unknown_terms_are_corrected_together_first() -> None:
    assert corrections("nordlcht invocie", KNOWN)[0] == "nordlicht invoice"
    assert "nordlicht invocie" in corrections("nordlcht invocie", KNOWN)


def test_an_empty_vocabulary_corrects_nothing() -> None:
    assert corrections("nordlcht from:a@b.example", Vocabulary()) == []


def test_each_term_can_be_left_out_of_a_search_with_several() -> None:
    assert reductions("invoice") == []
    assert reductions(' invoice from:"Jane Doe"  -is:held') == [
        ("invoice", 'from:"Jane Doe" -is:held'),
        ('from:"Jane Doe"', "invoice -is:held"),
        ("-is:held", 'invoice from:"Jane Doe"'),
    ]


def test_terms_know_their_place_in_the_text() -> None:
    text = '  hello -from:"Jane Doe" hello'
    assert [text[term.start : term.end] for term in parse_terms(text)] == ["hello", '-from:"Jane Doe"', "hello"]
