"""Searches a text for many patterns in one linear pass, by Vectorscan.

Vectorscan compiles all patterns into one database. That takes seconds, so `mailwarden compile` stores it.

Security: the text is hostile, the patterns are ours. The time of a pass is linear in the text.
"""

import re
from collections.abc import Collection, Sequence
from importlib.util import find_spec

# There is no wheel for some processors: then every pattern is tried one by one, which is slower.
VECTORSCAN = find_spec("hyperscan") is not None
if VECTORSCAN:
    import hyperscan

# RE2 reads `[:` as a class that begins with a colon, Vectorscan as the name of a class.
_COLON_FIRST = ("[:", r"[\:")
# Parts that match the same text byte by byte and character by character: escapes, any number of other characters, and
# a list of characters. The rest of a pattern may count or match a character of several bytes.
_BYTEWISE = re.compile(r"\\[^SWDpPX]|\[\^(?:\\.|[^\]\\])+\]\*|\[(?!\^)(?:\\[^SWD]|[^\]\\])+\]")
_OTHER_CHARACTERS = re.compile(r"[.\\]|\[\^")


def is_bytewise(pattern: str) -> bool:
    """Return whether a search byte by byte finds the same in UTF-8, which is faster."""
    return pattern.isascii() and not _OTHER_CHARACTERS.search(_BYTEWISE.sub("", pattern))


def compile_patterns(patterns: Sequence[str]) -> bytes:
    """Return the database of patterns in the syntax of RE2, or nothing where Vectorscan does not run."""
    if not (VECTORSCAN and patterns):
        return b""
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = [
        hyperscan.HS_FLAG_SINGLEMATCH | (0 if is_bytewise(pattern) else hyperscan.HS_FLAG_UTF8) for pattern in patterns
    ]
    expressions = [pattern.replace(*_COLON_FIRST).encode() for pattern in patterns]
    database.compile(expressions=expressions, ids=list(range(len(patterns))), flags=flags)
    return hyperscan.dumpb(database)


class PatternSet:
    """Patterns that are searched together."""

    def __init__(self, count: int, database: bytes) -> None:
        self._all = range(count)
        self._database = None
        if VECTORSCAN and database:
            try:
                self._database = hyperscan.loadb(database, hyperscan.HS_MODE_BLOCK)
                self._database.scratch = hyperscan.Scratch(self._database)
            except hyperscan.HyperscanError:  # made for another processor or version: slower, with the same result
                self._database = None

    @property
    def engine(self) -> str:
        """The library that searches: RE2 tries every pattern by itself, which is slower."""
        return "re2" if self._database is None else "vectorscan"

    def find(self, text: bytes) -> Collection[int]:
        """Return the numbers of the patterns that occur in a text in UTF-8; all of them without a database."""
        if self._database is None:
            return self._all
        found: list[int] = []

        def note(number: int, *_: object) -> None:
            found.append(number)

        self._database.scan(text, match_event_handler=note)
        return found
