"""Finds out which words of a fixed list occur in a text, in one pass by Vectorscan instead of a search for each word.

Security: the text is hostile, the words are ours. The time of a pass is linear in the text.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hyperscan

# There is no wheel for some processors: then the words are searched one by one, which is slower.
VECTORSCAN = find_spec("hyperscan") is not None


class LiteralSet:
    """Words of ASCII letters and signs in lower case; the case of a text does not matter."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(dict.fromkeys(words))

    def find(self, text: bytes) -> frozenset[str]:
        """Return the words that occur in a text in UTF-8."""
        if not VECTORSCAN:
            lower = text.lower()
            return frozenset(word for word in self._words if word.encode() in lower)
        found: list[int] = []

        def note(number: int, *_: object) -> None:
            found.append(number)

        self._database.scan(text, match_event_handler=note)
        return frozenset(map(self._words.__getitem__, found))

    @cached_property
    def _database(self) -> "hyperscan.Database":
        import hyperscan  # noqa: PLC0415 - only where it is installed

        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        flags = hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_CASELESS
        database.compile(
            expressions=[re.escape(word).encode() for word in self._words],
            ids=list(range(len(self._words))),
            flags=[flags] * len(self._words),
        )
        database.scratch = hyperscan.Scratch(database)
        return database
