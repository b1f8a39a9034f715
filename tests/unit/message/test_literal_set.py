"""Words of a list are found in a text in any case, by Vectorscan and without it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message import literal_set
from mailwarden.message.literal_set import LiteralSet

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
