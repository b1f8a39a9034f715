"""Books of phrases: what is found, what folding makes equal, and what hostile text costs."""

import re
import time
from functools import cache
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from mailwarden.analysis.text import phrases
from mailwarden.analysis.text.extraction import find_bitcoin_address
from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.text.pattern_set import compile_patterns
from mailwarden.analysis.text.phrases import (
    PORTION,
    Books,
    PhraseBook,
    compile_books,
    load_books,
    match_books,
    match_by_density,
    read_phrase,
)
from mailwarden.analysis.view import View
from mailwarden.message.parser import parse_message
from mailwarden.settings.compiled import CompiledFile
from tests.properties import examples

OFTEN = {"casino": 2}
PADDING = "the path goes around the pear trees and ends at the well "


def book_of(*written: str) -> PhraseBook:
    made = tuple(read_phrase("it", each) for each in written)
    return PhraseBook(Books(made, compile_patterns([each.in_order for each in made])))


def found(phrase: str, text: str) -> bool:
    return "it" in book_of(phrase).find(fold(text))


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("change .. bank details", "Please CHANGE our old bank\ndetails"),
        ("bankverbindung .. geändert", "Unsere Bankverbindung hat sich ge\u0061\u0308ndert"),
        ("(won|win) .. prize", "You w\u200bon a big p\u00adrize"),
        ("($|usd) ?\\d", "it costs $5"),
        ("银行账户", "新的银行账户"),
        ("ｆｕｌｌ width", "full width"),
        ("hasło .. wygas", "Haslo wygasa"),
        ("haslo .. wygas", "Hasło wygasa"),
        ("sifreniz .. sona eriyor", "Şifreniz bugün sona eriyor"),
        ("kartiniz", "Kart\u0131n\u0131z"),
        ("call .. (us|on)", "call the fees desk on Monday"),
        ("unpaid .. (tax|fee)", "unpaid parking fees"),
        ("you .. (win|\\$)", "you pay$5"),
        ("(expir(y|ed)|in)", "expiryless"),
    ],
)
def test_a_phrase_is_found_in_every_spelling(phrase, text):
    assert found(phrase.replace("($", "(\\$"), text)


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("change .. bank details", "Change your mind. The bank details are the same."),
        ("change .. bank details", f"change {'x' * 60} bank details"),
        ("win .. prize", "Darwin wrote of a prize"),
        ("win .. prize", "win, and be surprized" + " " * 5),
        ("call .. (us|support|on|at)", "call the onion seller, used atlas"),
        ("you have .. (win|gift|try)", "you have a window and a trya"),
        ("contact us", "contact users"),
        ("call .. (us|on|:)", "call the onion"),
        ("you .. (\\$|win|get)", "you are the target of Darwin"),
        ("((one|a) (win)|gift)", "a window"),
    ],
)
def test_a_phrase_stays_in_its_sentence_and_begins_at_words(phrase, text):
    assert not found(phrase, text)


def test_matched_phrases_are_reported_and_counted():
    match = book_of("one", "two", "three").find("two and one")["it"]
    assert (match.count, match.words) == (2, "one")


def test_the_words_are_those_of_the_message_though_a_phrase_ends_inside_a_word():
    assert book_of("password expir").find("your password expires, friend")["it"].words == "password expires"


def test_every_shipped_book_loads_and_re2_accepts_every_phrase():
    book = load_books()
    assert PhraseBook(Books(book.phrases)).find("nothing to see") == {}, "RE2 tries every phrase without a database"
    assert {family.partition(".")[0] for family in book.families} >= {"fraud", "lures", "offers"}


@pytest.mark.long
@pytest.mark.slow
def test_compiled_phrases_are_the_books(tmp_path):
    books = compile_books()
    made = CompiledFile(tmp_path / "phrases.msgpack", Books, phrases._sources)
    made.write(books)
    assert made.read() == books
    assert books.phrases == load_books().phrases


@cache
def both() -> tuple[PhraseBook, PhraseBook]:
    """Return the shipped books, matched by Vectorscan and RE2, and by RE2 alone."""
    books = phrases.COMPILED.read()
    assert books is not None
    assert books.database, "run `mailwarden compile`"
    return PhraseBook(books), PhraseBook(Books(books.phrases))


@st.composite
def texts_of_phrases(draw: st.DrawFn) -> str:
    """Make a text of pieces of phrases, nearer and further apart than a gap allows, also across sentences."""
    chosen = draw(st.lists(st.sampled_from(load_books().phrases), min_size=1, max_size=6))
    gaps = st.one_of(st.sampled_from([" ", ". ", ", ", "! ", "", "-", "é "]), st.integers(36, 44).map("y".__mul__))
    written = [
        draw(st.from_regex(re.compile(piece, re.ASCII), fullmatch=True)) + draw(gaps)
        for phrase in chosen
        for piece in phrase.pieces
    ]
    return fold(" ".join(written) if draw(st.booleans()) else "".join(written))


@pytest.mark.slow
@pytest.mark.parametrize("passage", [30, phrases.PASSAGE])
@examples(100, suppress_health_check=list(HealthCheck))
@given(text=texts_of_phrases())
def test_vectorscan_finds_exactly_what_re2_finds(text, passage):
    fast, slow = both()
    with patch.object(phrases, "PASSAGE", passage):  # RE2 alone searches the whole text
        assert fast.find(text) == slow.find(text)


ANY_CHARACTER = re.compile(r"(?<!\\)\.|\\[WSD]|\[\^")
LIST_OF_CHARACTERS = re.compile(r"\[(?!\^)[^]]*\]|\[\^\.!\?\]")


def test_no_phrase_goes_beyond_its_sentence():
    """Write `[^.!?]{0,20}` in a phrase, not `.{0,20}`: long texts are searched passage by passage."""
    beyond = [
        phrase
        for phrase in load_books().phrases
        if "".join(phrase.pieces).isascii()
        and any(ANY_CHARACTER.search(LIST_OF_CHARACTERS.sub("", piece)) for piece in phrase.pieces)
    ]
    assert beyond == []


def test_a_damaged_database_changes_no_result():
    fast, _ = both()
    damaged = PhraseBook(Books(fast.phrases, b"damaged"))
    assert (fast.engine, damaged.engine) == ("vectorscan", "re2")
    text = "please verify your account today. your mailbox is almost full"
    assert damaged.find(text) == fast.find(text) != {}


def test_the_digest_has_every_book_and_reader():
    assert len(list(phrases._sources())) == 6 + 3


@pytest.mark.parametrize(
    "text", ["", "a " * 15_000, "your account " * 2_300, "\u200b" * 30_000, "verify your .. " * 2_000, "账户" * 15_000]
)
def test_hostile_text_costs_little(text):
    book = load_books()
    started = time.process_time()
    book.find(fold(text))
    assert time.process_time() - started < 1.0


def test_a_bitcoin_address_is_verified_by_its_checksum():
    assert find_bitcoin_address("pay to 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa now")
    assert find_bitcoin_address("or BC1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KV8F3T4.")
    assert not find_bitcoin_address("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb and bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t5")
    assert not find_bitcoin_address("1" * 10_000 + " " + "bc1" + "q" * 10_000)
    assert not find_bitcoin_address("bc1" + "\u017f" * 20 + " bc1" + "\u212a" * 20), "letters that fold to ASCII ones"


def view_of(body, kind="plain"):
    return View(parse_message(f"Content-Type: text/{kind}; charset=utf-8\r\n\r\n{body}\r\n".encode()))


def names(view):
    return {finding.name for finding in match_by_density(view, "offers", OFTEN)}


def padded(characters):
    return PADDING * (characters // len(PADDING) + 1)


def test_one_phrase_of_a_short_text_is_heard():
    assert "offers.casino" in names(view_of("free spins for you"))


@pytest.mark.parametrize("portions", [1, 2, 5])
def test_one_phrase_of_a_long_text_is_chance(portions):
    assert "offers.casino" not in names(view_of(f"free spins for you. {padded(portions * PORTION)}"))


def test_repeated_phrases_match_in_a_long_text():
    text = "casino bonus. free spins. online casino. roulette and blackjack. slot machines. place your bets. jackpot. "
    assert "offers.casino" in names(view_of(text + padded(PORTION)))


def test_invisible_text_does_not_lower_the_density():
    hidden = f'<p>free spins for you</p><div style="display:none">{padded(2 * PORTION)}</div>'
    view = view_of(hidden, "html")
    assert view.unseen > PORTION
    assert "offers.casino" in names(view)


def test_a_long_text_is_matched_once_for_all_analyzers(monkeypatch):
    view = view_of("the path goes around the pear trees. " * 150_000)
    assert len(view.folded_texts) > 128
    match_books(view.folded_texts)
    monkeypatch.setattr(PhraseBook, "find", None)
    assert names(view) == set()
