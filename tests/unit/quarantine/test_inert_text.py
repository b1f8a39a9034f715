"""What strangers wrote is shown in one line, in bounds, in plain signs, and leads nowhere."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.quarantine.inert_text import inert


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Cheap watches", "Cheap watches"),
        ("Größe 42, 3.50 € … 日本語", "Größe 42, 3.50 € … 日本語"),
        ("a\r\nBcc: eve@evil.example", "a Bcc: eve@evil[.]example"),
        ("\x1b[31mred\x07", "[31mred"),
        ("abc\u202egpj.exe", "abc gpj[.]exe"),
        ("zero\u200bwidth\ufeff", "zero width"),
        ("see http://evil.example/x?y=1", "see http[:]//evil[.]example/x?y=1"),
        ("www.evil.example", "www[.]evil[.]example"),
        ("evil\u3002example evil\uff0eexample", "evil[.]example evil[.]example"),
        ("file:\\\\evil", "file[:]\\\\evil"),
        ("The end. Next", "The end. Next"),
        ("\ud800lone", "lone"),
        ("   ", ""),
    ],
)
def test_it_is_inert(text, shown):
    assert inert(text, 100) == shown


def test_it_is_cut_to_its_bound_and_says_so():
    assert inert("x" * 1_000, 10) == "x" * 9 + "…"
    assert inert("x" * 10, 10) == "x" * 10


@given(st.text(max_size=500))
def test_nothing_of_it_ends_a_line_turns_or_leads_anywhere(text):
    shown = inert(text, 100)
    assert shown.isprintable()
    assert len(shown) <= 300
    assert "://" not in shown
    assert not re.search(r"[A-Za-z0-9][.][A-Za-z]", shown)
    shown.encode("utf-8")
