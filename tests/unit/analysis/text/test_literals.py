"""The words that a phrase needs: none of them may be asked of a text that the phrase matches."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailwarden.analysis.text.literals import MOST, SENTENCE_ENDS, read_shape
from mailwarden.analysis.text.phrases import load_books

PIECES = sorted({piece for phrase in load_books().phrases for piece in phrase.pieces})


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("account", {"account"}),
        (r"\b(?:(your|the) account)", {"your account", "the account"}),
        ("suspend[a-z]* of", {"suspend"}),
        ("hours?", {"hour"}),
        (
            r"\d ?(h|days)",
            {f"{digit}{gap}{unit}" for digit in range(10) for gap in ("", " ") for unit in ("h", "days")},
        ),
        ("a{2}b+", {"aab"}),
        ("[ab]c", {"ac", "bc"}),
        (r"\$ ?5", {"$5", "$ 5"}),
        ("x.{0,20}word", {"word"}),
    ],
)
def test_the_words_that_a_pattern_needs(pattern, words):
    assert read_shape(pattern).best == words


@pytest.mark.parametrize(
    "pattern", ["", "(a|b)?", "[^a]", ".", r"\w+", "(?i)a", "a)", "(a", "[a", "a{", "\\", "^$", "a*"]
)
def test_a_pattern_without_required_words_has_no_literals(pattern):
    assert read_shape(pattern).best is None


@pytest.mark.parametrize(
    ("pattern", "crosses"),
    [("a b", False), (r"\d[\d.,]*", True), ("a.b", True), ("[^a]", True), (r"(a|u\.s)", True), ("a?", False)],
)
def test_whether_a_pattern_may_hold_the_end_of_a_sentence(pattern, crosses):
    assert read_shape(pattern).crosses is crosses


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_every_match_of_a_shipped_phrase_has_one_of_its_literals(data):
    piece = data.draw(st.sampled_from(PIECES))
    shape = read_shape(piece)
    text = data.draw(st.from_regex(re.compile(piece, re.ASCII), fullmatch=True))
    assert shape.best is None or any(word in text for word in shape.best)
    assert shape.crosses or not any(end in text for end in SENTENCE_ENDS)
    assert shape.exact is None or text in shape.exact


@given(st.text(alphabet="ab|()?*+{}[]^-\\.d1, ", max_size=30))
def test_any_pattern_is_read_within_bounds(pattern):
    shape = read_shape(pattern)
    assert all(len(words or ()) <= 8 * MOST for words in (shape.exact, shape.needed, shape.begins, shape.ends))
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, FutureWarning):
        return
    for text in ("", "a", "b", "ab", "ba", "aab", "b1", "d", "a.b", " "):
        if compiled.fullmatch(text):
            assert shape.best is None or any(word in text for word in shape.best)
            assert shape.crosses or "." not in text
