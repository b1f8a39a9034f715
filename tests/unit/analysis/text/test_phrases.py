"""Books of phrases: what is found, what folding makes equal, and what hostile text costs."""

import time

import pytest

from mailwarden.analysis.text.bitcoin_addresses import find_bitcoin_address
from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.text.phrases import PhraseBook, load_books


def found(phrase: str, text: str) -> bool:
    return "it" in PhraseBook({"it": (phrase,)}).find(fold(text))


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("change .. bank details", "Please CHANGE our old bank\ndetails"),
        ("bankverbindung .. geändert", "Unsere Bankverbindung hat sich ge\u0061\u0308ndert"),
        ("(won|win) .. prize", "You w\u200bon a big p\u00adrize"),
        ("($|usd) ?\\d", "it costs $5"),
        ("银行账户", "新的银行账户"),
        ("ｆｕｌｌ width", "full width"),
    ],
)
def test_a_phrase_is_found_however_it_is_written(phrase, text):
    assert found(phrase.replace("($", "(\\$"), text)


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("change .. bank details", "Change your mind. The bank details are the same."),
        ("change .. bank details", f"change {'x' * 60} bank details"),
        ("win .. prize", "Darwin wrote of a prize"),
        ("win .. prize", "win, and be surprized" + " " * 5),
    ],
)
def test_a_phrase_stays_in_its_sentence_and_begins_at_words(phrase, text):
    assert not found(phrase, text)


def test_the_words_that_were_heard_are_told_and_counted():
    match = PhraseBook({"it": ("one", "two", "three")}).find("two and one")["it"]
    assert (match.count, match.words) == (2, "one")


def test_every_shipped_book_loads_and_every_phrase_is_one_that_re2_takes():
    assert load_books().find("nothing to see") == {}
    assert {family.partition(".")[0] for family in load_books().families} >= {"fraud", "lures", "offers"}


@pytest.mark.parametrize(
    "text", ["", "a " * 15_000, "your account " * 2_300, "\u200b" * 30_000, "verify your .. " * 2_000, "账户" * 15_000]
)
def test_hostile_text_costs_little(text):
    book = load_books()
    started = time.process_time()
    book.find(fold(text))
    assert time.process_time() - started < 1.0


def test_a_bitcoin_address_is_told_by_its_checksum():
    assert find_bitcoin_address("pay to 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa now")
    assert find_bitcoin_address("or BC1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KV8F3T4.")
    assert not find_bitcoin_address("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb and bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t5")
    assert not find_bitcoin_address("1" * 10_000 + " " + "bc1" + "q" * 10_000)
    assert not find_bitcoin_address("bc1" + "\u017f" * 20 + " bc1" + "\u212a" * 20), "letters that fold to ASCII ones"
