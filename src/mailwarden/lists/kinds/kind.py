"""A kind of entry: how its text is cleaned and read, its breadth check, its specificity and its lookup key.

Security: reads text from feeds and senders. Every step is linear and the text is bounded.
"""

import re
from collections.abc import Callable, Sequence
from typing import NewType, Protocol, cast
from unicodedata import normalize

import re2
from msgspec import Struct

from mailwarden.errors import InvalidEntry

MAX_ENTRY = 2_000
MAX_PLAIN = 253  # characters, so that no domain is too long
_PLAIN_STEP = 100  # texts that are read one by one if one of them is not in plain form
# White space, and the invisible marks that copying out of a page or a file leaves at the ends.
_TRIMMED = "".join(character for character in map(chr, range(0x3001)) if character.isspace()) + "\u200b\u2060\ufeff"
# C0, DEL, C1, separators of lines, and overrides of direction.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_HALVES = re.compile("[\ud800-\udfff]")  # lone surrogates, which invalid UTF-8 becomes
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\ud800-\udfff]"
)
_DEFANGED = re.compile(r" ?[\[({] ?(\.|dot|@|at|:|://|/) ?[\])}] ?", re.IGNORECASE)
_MEANT = {"dot": ".", "at": "@"}

Entry = NewType("Entry", str)
"""An entry in its one stored form."""


def clean(text: str) -> str:
    """Return the text trimmed and in NFC, or raise InvalidEntry."""
    text = text.strip(_TRIMMED)
    if not text:
        raise InvalidEntry("The entry is empty.")
    if len(text) > MAX_ENTRY:
        raise InvalidEntry(f"An entry has at most {MAX_ENTRY:,} characters.")
    if text.isascii() and text.isprintable():
        return text
    if _HALVES.search(text):
        raise InvalidEntry("The entry is not UTF-8.")
    if forbidden := _FORBIDDEN.search(text):
        raise InvalidEntry(f"The entry holds the character U+{ord(forbidden.group()):04X}, which no entry may hold.")
    return normalize("NFC", text)


def refang(text: str) -> str:
    """Make a defanged name whole: a dot, `@`, `:` or `/` in brackets, or `dot` and `at` in brackets, as people write.

    The bare words ` dot ` and ` at ` are left alone: they may be meant as words.
    """
    if "]" in text or ")" in text or "}" in text:
        return _DEFANGED.sub(_whole, text)
    return text


def fold(text: str) -> str:
    """Return the text as two spellings of one phrase share it: compatible forms, case, spaces and marks unseen.

    Folding twice changes nothing. Texts of messages and stored texts both go through this function.
    """
    if text.isascii() and text.isprintable():
        return " ".join(text.lower().split())
    text = " ".join(text.split())
    for _ in range(4):  # folding the case may undo the normal form, and the reverse
        folded = " ".join(normalize("NFKC", _INVISIBLE.sub("", normalize("NFKC", text).casefold())).split())
        if folded == text:
            break
        text = folded
    return text


def drop_invisible(text: str) -> str:
    """Return the text without invisible characters, which split words unnoticed."""
    return text if text.isascii() and text.isprintable() else _INVISIBLE.sub("", text)


def _whole(defanged: re.Match[str]) -> str:
    return _MEANT.get(defanged[1].lower(), defanged[1])


class BreadthCheck(Protocol):
    """Raises EntryTooBroad for an entry that covers what belongs to many."""

    def __call__(self, entry: str, *, lets_through: bool) -> None: ...


class PlainForm:
    """Recognises texts that are entries already: one pattern over many of them costs a tenth of reading each.

    `line` is an RE2 pattern of texts for which `Kind.read` certainly returns the text without the prefixes `dropped`,
    which occur nowhere else in it.
    """

    def __init__(self, line: str, dropped: Sequence[str] = ()) -> None:
        options = re2.Options()
        options.never_capture = True
        self._lines = cast("_Pattern", re2.compile(rf"(?:(?:{line})\n)*", options))
        self._dropped = dropped

    def stored(self, texts: Sequence[str]) -> Sequence[str] | None:
        """Return the stored forms, if all texts are in plain form."""
        lines = "\n".join(texts) + "\n"
        if not lines.isascii() or max(map(len, texts)) > MAX_PLAIN or lines.count("\n") != len(texts):
            return None
        if self._lines.fullmatch(lines) is None:
            return None
        if not any(prefix in lines for prefix in self._dropped):
            return texts
        for prefix in self._dropped:
            lines = lines.replace(prefix, "")
        return lines.split("\n")[:-1]


class _Pattern(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


class BreadthDoubt(Protocol):
    """Returns whether one of many entries in plain form may be too broad; False is certain."""

    def __call__(self, entries: Sequence[str], *, lets_through: bool) -> bool: ...


def never_too_broad(entry: str, *, lets_through: bool) -> None:
    """Accept the entry: no entry of this kind is too broad."""


def no_doubt(entries: Sequence[str], *, lets_through: bool) -> bool:
    """Return False: no entry of this kind in plain form is too broad."""
    del entries, lets_through
    return False


def itself(entry: str) -> str:
    return entry


class Kind(Struct, frozen=True):
    """One way in which entries are written.

    `read` takes a cleaned text to the stored form or raises InvalidEntry; `check_breadth` raises EntryTooBroad;
    `specificity` orders entries of this kind that match one value; `key` is what a message's candidates are
    looked up by. Reading what was read, and so normalising, changes nothing the second time.

    `plain` and `may_be_broad` are shortcuts for many entries. Entries that they leave open are read and checked one by
    one.
    """

    name: str
    form: str
    examples: tuple[tuple[str, str], ...]
    read: Callable[[str], str]
    specificity: Callable[[str], int]
    check_breadth: BreadthCheck = never_too_broad
    key: Callable[[str], str] = itself
    plain: PlainForm | None = None
    may_be_broad: BreadthDoubt = no_doubt
    matches_text: bool = False  # entries are sought in a text of the message, not found by a key

    @property
    def found_by_itself(self) -> bool:
        """Return whether the stored entry is the key that it is found by."""
        return self.key is itself and not self.matches_text

    def spell(self, text: str) -> Entry:
        """Return the stored form without the breadth check, so that entries stored under older rules can be deleted."""
        entry = self.read(clean(text))
        if len(entry) > MAX_ENTRY:
            raise InvalidEntry(f"In its stored form an entry has at most {MAX_ENTRY:,} characters.")
        return Entry(entry)

    def normalise(self, text: str, *, lets_through: bool = False) -> Entry:
        """Return the stored form, or raise InvalidEntry or EntryTooBroad; a list that lets mail through is stricter."""
        entry = self.spell(text)
        self.check_breadth(entry, lets_through=lets_through)
        return entry

    def normalise_plain(self, texts: Sequence[str], *, lets_through: bool = False) -> list[Entry | None]:
        """Return the stored form of each text, or None for those that `normalise` must read."""
        entries: list[Entry | None] = []
        for start in range(0, len(texts), _PLAIN_STEP):
            some = texts[start : start + _PLAIN_STEP]
            stored = self.plain.stored(some) if self.plain is not None else None
            if stored is None or self.may_be_broad(stored, lets_through=lets_through):
                entries.extend([None] * len(some))
            else:
                entries.extend(cast("Sequence[Entry]", stored))
        return entries
