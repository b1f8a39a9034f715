"""Patterns that RE2 searches in ASCII text, and `re` in other text: the same matches, several times as fast.

RE2 reads `\\d`, `\\w` and `\\b` as ASCII, `re` as Unicode. In ASCII text both are the same.

Security: the text is hostile, the patterns are ours; RE2 is linear.
"""

import re
from typing import Protocol, cast

import re2


class _Pattern(Protocol):
    def search(self, text: str) -> re.Match[str] | None: ...


class TextPattern:
    """A pattern without lookarounds, `$` and `\\s`, which RE2 reads differently."""

    def __init__(self, pattern: str) -> None:
        if re.search(r"\\[sSZA]|(?<!\\)\$|\(\?[=!<]", pattern):
            raise ValueError(f"RE2 reads this pattern differently: {pattern}")
        self._fast = cast("_Pattern", re2.compile(pattern))
        self._exact = re.compile(pattern)

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match."""
        return (self._fast if text.isascii() else self._exact).search(text)
