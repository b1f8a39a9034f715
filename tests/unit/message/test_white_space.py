"""White space is collapsed in long texts as in short ones."""

import random

import pytest

from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.view import View
from mailwarden.message.parser import parse_message
from mailwarden.message.white_space import squeeze


@pytest.mark.parametrize("separators", [" ", " \n\t", "\n\u00a0", "x"])
def test_long_texts_are_squeezed_as_short_ones(separators):
    chance = random.Random(separators)
    words = [*separators, *"abcé", separators * 50]
    text = "".join(chance.choices(words, k=150_000))
    assert len(text) > 250_000
    whole = " ".join(text.split())
    assert squeeze(text) == whole
    assert squeeze(text + " " * 600_000) == whole
    for most in (0, 1_000, len(whole) - 1, len(whole)):
        cut = squeeze(text, most)
        assert whole.startswith(cut)
        assert len(cut) > most or cut == whole


def test_a_long_text_is_folded_as_a_short_one():
    words = ["ΟΔΟΣ", "É", "e\u0301", "\u0301", "straße", "\u200b", " ", " ", "\n", "I\u0307", "ﬁ", "Σ"]
    text = "".join(random.Random(3).choices(words, k=200_000))
    message = f"Subject: x\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{text}\r\n".encode()
    view = View(parse_message(message))
    assert len(view.text) > 250_000
    assert view.folded_text == fold(f"x . {view.text}")
