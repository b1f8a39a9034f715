"""Finds out which words of a fixed list occur in a text or a file, in one pass by Vectorscan instead of one for each.

Security: the text is hostile, the words are ours. The time of a pass is linear in the text.
"""

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hyperscan

# There is no wheel for some processors: then the words are searched one by one, which is slower.
VECTORSCAN = find_spec("hyperscan") is not None
LARGE = 65_536  # bytes; a search for each mark is as fast in a smaller file


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
        return _compile([word.encode() for word in self._words], caseless=True)


class Marks:
    """Sequences of bytes that identify a file, wherever they stand in it."""

    def __init__(self, marks: Sequence[bytes]) -> None:
        self._marks = tuple(marks)

    def occur_in(self, content: bytes) -> bool:
        """Return whether one of them stands in a file."""
        if not VECTORSCAN or len(content) < LARGE:
            return any(mark in content for mark in self._marks)
        found: list[int] = []

        def note(number: int, *_: object) -> None:
            found.append(number)

        self._database.scan(content, match_event_handler=note)
        return bool(found)

    @cached_property
    def _database(self) -> "hyperscan.Database":
        return _compile(self._marks, caseless=False)


def _compile(words: Sequence[bytes], *, caseless: bool) -> "hyperscan.Database":
    import hyperscan  # noqa: PLC0415 - only where it is installed

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = hyperscan.HS_FLAG_SINGLEMATCH | (hyperscan.HS_FLAG_CASELESS if caseless else 0)
    database.compile(
        # Vectorscan ends an expression at its first zero byte.
        expressions=["".join(f"\\x{byte:02x}" for byte in word).encode() for word in words],
        ids=list(range(len(words))),
        flags=[flags] * len(words),
    )
    database.scratch = hyperscan.Scratch(database)
    return database
