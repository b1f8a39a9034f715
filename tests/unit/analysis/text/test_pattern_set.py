"""Many patterns in one pass."""

import pytest

from mailwarden.analysis.text.pattern_set import PatternSet, compile_patterns, is_bytewise


def found(pattern: str, text: str) -> bool:
    patterns = ["unrelated", pattern]
    return 1 in PatternSet(2, compile_patterns(patterns)).find(text.encode())


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"visa.{0,6}card", "visa カート card"),
        (r"visa[^,]{0,6}card", "visa カート card"),
        (r"visa\S{0,3}card", "visaカートcard"),
        (r"visa[^.!?]*card", "visa カート card"),
        (r"é?card", "card"),
        (r"[:;] ?\)", ":)"),
        (r"\bcard", "новый card"),
    ],
)
def test_a_pattern_counts_characters_not_bytes(pattern, text):
    assert found(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"), [(r"visa.{0,2}card", "visa カート card"), (r"\bcard", "discard"), ("é{2}card", "écard")]
)
def test_a_pattern_that_does_not_match_is_not_found(pattern, text):
    assert not found(pattern, text)


def test_a_database_of_another_version_is_not_used():
    database = bytearray(compile_patterns(["a card"]))
    assert PatternSet(1, bytes(database)).engine == "vectorscan"
    database[4] ^= 1  # a byte of the library's version
    patterns = PatternSet(1, bytes(database))
    assert patterns.engine == "re2"
    assert list(patterns.find(b"nothing")) == [0], "every pattern is tried"


@pytest.mark.parametrize(
    ("pattern", "bytewise"),
    [
        ("a b", True),
        (r"(a|b)?\d+", True),
        (r"a[^.!?]*b", True),
        (r"\$ ?\d[\d.,]*", True),
        (r"a\.b", True),
        ("a.b", False),
        ("[^a]", False),
        ("a[^b]{0,3}", False),
        (r"\S+", False),
        (r"[\S]", False),
        ("é", False),
    ],
)
def test_which_patterns_are_searched_byte_by_byte(pattern, bytewise):
    assert is_bytewise(pattern) is bytewise


def test_without_a_database_every_pattern_may_occur():
    assert list(PatternSet(3, b"").find(b"text")) == [0, 1, 2]


@pytest.mark.parametrize("damage", [(0, b"\0" * 4), (4, b"\xff" * 4), (12, b"\xff" * 8), (2_000, b"\x55")])
def test_a_database_that_does_not_load_is_as_good_as_none(damage: tuple[int, bytes]) -> None:
    at, other = damage
    stored = bytearray(compile_patterns(["one", "two"]))
    stored[at : at + len(other)] = other
    assert list(PatternSet(2, bytes(stored)).find(b"text")) == [0, 1]
