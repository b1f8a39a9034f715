"""Patterns that two engines search with the same result."""

import pytest

from mailwarden.analysis.text.patterns import TextPattern


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"\baccount\b", "your account is", "account"),
        (r"\baccount", "\xe9account", None),
        (r"\d{3}", "\u0661\u0662\u0663", "\u0661\u0662\u0663"),
        (r"\d{3}", "call 123", "123"),
        (r"(?:a|ab)c?", "abc", "a"),
    ],
)
def test_a_pattern_reads_ascii_and_other_text_as_python_does(pattern, text, found):
    match = TextPattern(pattern).search(text)
    assert (match[0] if match else None) == found


@pytest.mark.parametrize("pattern", [r"a\s", r"a$", "(?<=a)b", "a(?!b)", r"\Sa"])
def test_a_pattern_that_re2_reads_differently_is_refused(pattern):
    with pytest.raises(ValueError, match="RE2"):
        TextPattern(pattern)
