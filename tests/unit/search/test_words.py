"""The words of a message: bounded, without accents and case, and the same for queries and rows."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.history.postgresql.search import tsquery
from mailwarden.model.envelope import Envelope
from mailwarden.model.record import MessageSummary
from mailwarden.search.query import condition_matches, parse_query
from mailwarden.search.terms import terms_of
from mailwarden.search.words import (
    MAX_LEXEMES,
    WORD_LENGTH,
    lexemes_match,
    lexemes_of,
    plain,
    spellings,
    split_words,
    tenant_lexeme,
)
from tests.samples.finished import finished_request


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Björn", "bjorn"),
        ("ŁUKASZ", "lukasz"),
        ("Ærøskøbing", "aeroskobing"),
        ("Straße", "strasse"),
        ("e\N{COMBINING ACUTE ACCENT}te", "ete"),
        ("İstanbul", "istanbul"),
        ("한국", "한국"),
        ("ﬁnance", "finance"),
    ],
)
def test_spellings_with_and_without_accents_are_the_same(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_umlauts_are_also_searched_as_two_letters() -> None:
    assert spellings("Müller") == ("muller", "mueller")
    assert spellings("Meier") == ("meier",)


def test_words_are_split_at_everything_but_letters_and_digits() -> None:
    assert split_words("Re: invoice_4711-b.PDF, Grüße") == ["re", "invoice", "4711", "b", "pdf", "grusse"]
    assert split_words("您的发票 OK") == ["您的", "的发", "发票", "ok"]
    assert split_words("a" * 99) == ["a" * WORD_LENGTH]


def test_each_field_has_its_lexemes() -> None:
    request = finished_request(tenant=UUID(int=5))
    found = set(lexemes_of(request))
    assert {"@" + UUID(int=5).hex, "sgrusse", "falice", "fsender", "tbob", "tacme", "ubank", "uevil"} <= found
    assert "fexample" not in found, "the last label of a domain"


def test_a_message_with_many_recipients_and_links_is_bounded() -> None:
    recipients = tuple(f"user{number}@acme{number}.example" for number in range(1_000))
    hosts = tuple(f"host{number}.example" for number in range(256))
    request = finished_request(envelope=Envelope("", recipients), summary=MessageSummary(1, "", url_hosts=hosts))
    assert len(lexemes_of(request)) == MAX_LEXEMES


@given(st.text(max_size=200), st.text(max_size=100), st.text(max_size=100))
def test_hostile_texts_make_lexemes_of_letters_and_digits(subject: str, address: str, host: str) -> None:
    summary = MessageSummary(1, "", from_address=address, from_name=subject, subject=subject, url_hosts=(host,))
    request = finished_request(summary=summary, envelope=Envelope(address, (address,)))
    for lexeme in lexemes_of(request)[1:]:
        assert lexeme[1:].isalnum()
        assert len(lexeme) <= WORD_LENGTH + 1


@given(st.text(alphabet=st.characters(categories=("L", "Nd")), min_size=1, max_size=30), st.data())
def test_a_word_is_found_by_itself_and_by_its_beginnings(word: str, data: st.DataObject) -> None:
    request = finished_request(subject=f"the {word} of today")
    terms = frozenset(terms_of(request))
    if not (words := split_words(word)):
        return
    length = data.draw(st.integers(2, max(2, len(words[0]))))
    for text in (f'"{word}"', f"subject:{word}", f'"{words[0][:length]}"', f'"{word.upper()}"'):
        (condition,) = parse_query(text).conditions
        assert condition_matches(condition, terms, request), text


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_words_of_a_query_need_no_escape_in_the_index(first: str, second: str) -> None:
    groups = [(f"s{word}*",) for word in split_words(first) + split_words(second)]
    for part in tsquery(groups, tenant_lexeme(UUID(int=1))).split(" & "):
        assert part.strip("(@)':*").isalnum()


def test_a_group_needs_one_match_and_all_groups_must_match() -> None:
    assert lexemes_match((("sinv*", "finv*"), ("tbob*",)), ("sinvoice", "tbob"))
    assert not lexemes_match((("sinv*",), ("tbob",)), ("sinvoice", "tbobby"))
    assert lexemes_match((), ())


def test_a_query_for_a_domain_also_finds_a_name_of_that_form() -> None:
    request = finished_request()
    named = msgspec.structs.replace(
        request, summary=MessageSummary(1, "", from_address="jane.doe@other.example", subject="x")
    )
    (condition,) = parse_query("jane.doe").conditions
    assert condition_matches(condition, frozenset(terms_of(named)), named)
    assert not condition_matches(condition, frozenset(terms_of(request)), request)
