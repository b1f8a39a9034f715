"""Words of a list are found in a text in any case, and marks in a file, by Vectorscan and without it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message import literal_set
from mailwarden.message.literal_set import LARGE, LiteralSet, Marks

WORDS = LiteralSet(("src", "srcset", "<im", "\\", "data=", "[if", "on", "href"))


@pytest.mark.parametrize("vectorscan", [True, False])
def test_words_are_found_in_any_case(vectorscan, monkeypatch):
    monkeypatch.setattr(literal_set, "VECTORSCAN", vectorscan and literal_set.VECTORSCAN)
    text = '<IMG SrcSet="é"> <a hRef=\\> <!--[IF mso]> data ='.encode()
    assert WORDS.find(text) == {"src", "srcset", "<im", "\\", "[if", "href"}
    assert WORDS.find(b"") == frozenset()


@given(st.text(alphabet="srcetdaimonhf<[\\=SRCET éK", max_size=80))
def test_both_ways_find_the_same(text):
    lower = text.encode().lower()
    assert WORDS.find(text.encode()) == {word for word in WORDS._words if word.encode() in lower}


MARKS = (b"X\x005\x00O\x00", b"a.c", b"<office:document", b"\\PZ(^")


@pytest.mark.parametrize("vectorscan", [True, False])
@pytest.mark.parametrize("place", [0, 5, LARGE])
@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_is_found_anywhere_in_a_large_file(mark: bytes, place: int, vectorscan, monkeypatch):
    monkeypatch.setattr(literal_set, "VECTORSCAN", vectorscan and literal_set.VECTORSCAN)
    marks = Marks(MARKS)
    filling = b"X5O abc <OFFICE:DOCUMENT \\PZ" * (LARGE // 20)
    assert marks.occur_in(filling[:place] + mark + filling[place:])
    assert not marks.occur_in(filling[:place] + mark[:-1] + b"-" + filling[place:])
    assert not marks.occur_in(filling)
