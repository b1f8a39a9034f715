"""Phrase books: families of phrases as data, matched in one linear pass over the text that a person reads.

A phrase is written in lower case; `..` stands for up to 40 characters of the same sentence, and RE2 syntax
(`(a|b)`, `s?`, `\\d`) is allowed. A piece begins with a word and may end inside one, so that stems match; but one to
three letters at its end are a whole word, because they begin many others (`win` and window). Accents, wide forms and
invisible characters are folded on both sides.

Security: the text is hostile, the phrases are ours; Vectorscan and RE2 are linear, reported words are cut.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Protocol, cast

import re2
from msgspec import Struct, convert
from ruamel.yaml import YAML

from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.text.pattern_set import PatternSet, compile_patterns
from mailwarden.analysis.view import View
from mailwarden.message.limits import SHOWN
from mailwarden.model.evidence import Fact, Finding
from mailwarden.settings.compiled import CompiledFile

SENTENCE_ENDS = ".!?"
PHRASE_MEMORY = 512 * 1024  # RE2 drops its states beyond this size and rebuilds them
_GAP = f"[^{SENTENCE_ENDS}]{{0,40}}"
_ANY_GAP = f"[^{SENTENCE_ENDS}]*"
_BOOK = "_phrases.yml"
_FOLDER = Path(__file__).parent
_LATIN = re.compile(r"[a-z0-9]|\\d")
_WORD_BEGINS = r"\b"
PASSAGE = 2_000  # bytes, the least that is searched at once
# Where a passage may end: after a word and the end of its sentence. No phrase goes beyond that, but those of languages
# without spaces, which allow some characters of any kind between their words.
_PASSAGE_ENDS = re.compile(rb"[a-z]{3}[.!?] ")
_APART = 60  # bytes on both sides without such a language
# A dot inside a number ends no sentence: without this, "1.500.000" would part a phrase.
_NUMBER = re.compile(rb"\.(?<=\d\.)(?=\d)")
_WORD_ENDS = r"\b"
_SHORT_WORD = re.compile(r"(?:^|[ '-])([a-z]{1,3})$")
_AFTER_WORD = re.compile(r"(?:^|[ '-])\)?[?*]?$")  # a group that follows begins a word
_REST_OF_WORD = re.compile(rb"[a-z0-9]{1,30}")
PORTION = 2_500  # characters beyond which one more phrase of a family may be chance
_OFTEN = "-often"


class _Pattern(Protocol):
    def search(self, text: bytes) -> re.Match[bytes] | None: ...


class PhraseMatch(Struct, frozen=True):
    """A matched family: the number of its phrases, and the words of the first."""

    count: int
    words: str


Matches = Mapping[str, PhraseMatch]  # by family


class Phrase(Struct, frozen=True):
    """A phrase: its pieces as patterns, in their order."""

    family: str
    pieces: tuple[str, ...]

    @property
    def in_order(self) -> str:
        """The pattern of its pieces in one sentence, however far apart: a gap that counts makes a large database."""
        return _ANY_GAP.join(self.pieces)

    @property
    def exact(self) -> str:
        return _GAP.join(self.pieces)


class Books(Struct, frozen=True):
    """The phrases of all books, and the database of their patterns."""

    phrases: tuple[Phrase, ...]
    database: bytes = b""


class PhraseBook:
    """Families of phrases, each found or not.

    One pass of Vectorscan finds the phrases whose pieces occur in their order. RE2 confirms those with gaps, and finds
    the words to report.
    """

    def __init__(self, books: Books) -> None:
        self.phrases = books.phrases
        self.families = tuple(dict.fromkeys(phrase.family for phrase in self.phrases))
        self._in_order = PatternSet(len(self.phrases), books.database)
        self._sure = self.engine == "vectorscan"
        self._exact: dict[int, _Pattern] = {}  # of the phrases found so far: most never are

    @property
    def engine(self) -> str:
        """The library that searches for all phrases: `vectorscan` with a database, `re2` without."""
        return self._in_order.engine

    def find(self, text: str) -> dict[str, PhraseMatch]:
        """Return the families whose phrases occur in a folded text, in the order of the book."""
        found: dict[int, re.Match[bytes] | bytes] = {}  # phrase: its words, or the passage that contains it first
        plain = _NUMBER.sub(b",", text.encode())
        for passage in _passages(plain) if self._sure else [plain]:
            for number in self._in_order.find(passage):
                if number not in found and (place := self._place(number, passage)):
                    found[number] = place
        counts: dict[str, int] = {}
        words: dict[str, str] = {}
        for number in sorted(found):
            family = self.phrases[number].family
            counts[family] = counts.get(family, 0) + 1
            if family not in words:
                words[family] = self._words(number, found[number])
        return {family: PhraseMatch(count, words[family]) for family, count in counts.items()}

    def _place(self, number: int, passage: bytes) -> re.Match[bytes] | bytes | None:
        """Return where a phrase occurs whose pieces were found in order; the passage, if it has a single piece."""
        exact = self._sure and len(self.phrases[number].pieces) == 1
        return passage if exact else self._pattern(number).search(passage)

    def _words(self, number: int, place: re.Match[bytes] | bytes) -> str:
        found = self._pattern(number).search(place) if isinstance(place, bytes) else place
        if found is None:
            return ""
        ending = _REST_OF_WORD.match(found.string, found.end())  # a phrase may end inside a word
        return (found[0] + (ending[0] if ending else b"")).decode()[: SHOWN.word]

    def _pattern(self, number: int) -> _Pattern:
        if number not in self._exact:
            self._exact[number] = _compile(self.phrases[number].exact)
        return self._exact[number]


def _passages(text: bytes) -> Iterator[bytes]:
    """Yield the passages of a text: RE2 then confirms a phrase where its pieces were found, not in all of the text."""
    start = 0
    while len(text) - start > PASSAGE:
        ends = (end.end() for end in _PASSAGE_ENDS.finditer(text, start + PASSAGE))
        stop = next((end for end in ends if text[end - _APART : end + _APART].isascii()), len(text))
        yield text[start:stop]
        start = stop
    yield text[start:]


def read_phrase(family: str, phrase: str) -> Phrase:
    """Return a phrase of a book."""
    return Phrase(family, tuple(_begin(_end(piece.strip())) for piece in fold(phrase).split("..")))


def _begin(piece: str) -> str:
    """Anchor a piece, or each alternative at its front, at the start of a word if it begins with a letter or digit."""
    if all(_LATIN.match(start) for start in _starts(piece)):
        return rf"{_WORD_BEGINS}(?:{piece})"
    if not piece.startswith("("):
        return f"(?:{piece})"
    closing = _first_group(piece)
    alternatives = "|".join(map(_begin, _alternatives(piece[1:closing])))
    return f"(?:({alternatives}){piece[closing + 1 :]})"


def _first_group(piece: str) -> int:
    """Return where the group that opens a piece closes."""
    depth = 0
    for place, character in _plain(piece):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place
    raise ValueError(f"a parenthesis is not closed: {piece}")


def _end(piece: str) -> str:
    """Let a short word at the end of a piece, or of an alternative there, match a whole word or its plural."""
    opening = _last_group(piece)
    if opening < 0:
        short = _SHORT_WORD.search(piece)
        return piece + ("s?" if len(short[1]) == 3 else "") + _WORD_ENDS if short else piece
    if not _AFTER_WORD.search(piece[:opening]):  # its alternatives are endings of a word
        return piece
    return piece[: opening + 1] + "|".join(map(_end, _alternatives(piece[opening + 1 : -1]))) + ")"


def _last_group(piece: str) -> int:
    """Return where the group at the end of a piece opens, or -1."""
    opened = [-1]
    last = -1
    for place, character in _plain(piece):
        if character == "(":
            opened.append(place)
        elif character == ")":
            opening = opened.pop()
            last = opening if place == len(piece) - 1 else -1
    return last


def _alternatives(group: str) -> Iterator[str]:
    depth = start = 0
    for place, character in _plain(group):
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            yield group[start:place]
            start = place + 1
    yield group[start:]


def _plain(pattern: str) -> Iterator[tuple[int, str]]:
    """Yield the characters that are neither escaped nor in a list of characters, with their places."""
    escaped = listed = False
    for place, character in enumerate(pattern):
        if not escaped and not listed and character not in "\\[":
            yield place, character
        listed = (character == "[" or listed) and (escaped or character != "]")
        escaped = character == "\\" and not escaped


def _starts(piece: str) -> Iterator[str]:
    """Yield how a piece may begin: a group at its front begins as any of its alternatives does."""
    if not piece.startswith("("):
        yield piece
        return
    for alternative in _alternatives(piece[1 : _first_group(piece)]):
        yield from _starts(alternative)


def _compile(pattern: str) -> _Pattern:
    options = re2.Options()
    options.max_mem = PHRASE_MEMORY
    options.log_errors = False
    options.never_capture = True  # groups only enclose alternatives; to find their places costs a second pass
    return cast("_Pattern", re2.compile(pattern.encode(), options))


@cache
def load_books() -> PhraseBook:
    """Return all books in one, from the compiled file if it was made from the current books."""
    return PhraseBook(COMPILED.read() or Books(read_phrases()))


def compile_books() -> Books:
    """Return all books with the database of their patterns, which takes about ten seconds."""
    phrases = read_phrases()
    return Books(phrases, compile_patterns([phrase.in_order for phrase in phrases]))


def read_phrases() -> tuple[Phrase, ...]:
    """Read every book `<name>_phrases.yml` beside the analyzers; its families are `<name>.<family>`."""
    phrases: list[Phrase] = []
    for file in _books():
        name = file.name.removesuffix(_BOOK)
        read = convert(YAML(typ="safe").load(file.read_text("utf-8")), dict[str, str])
        phrases += [
            read_phrase(f"{name}.{family}", line) for family, lines in read.items() for line in lines.splitlines()
        ]
    return tuple(phrases)


def _sources() -> Iterator[Path]:
    yield from _books()
    for name in ("phrases.py", "pattern_set.py", "folding.py"):
        yield _FOLDER / name


def _books() -> list[Path]:
    return sorted((_FOLDER.parent / "analyzers").glob(f"*{_BOOK}"))


COMPILED = CompiledFile(_FOLDER / "__pycache__" / "phrases.msgpack", Books, _sources)


@lru_cache(maxsize=1)  # every analyzer of phrases matches the texts of one message, one after the other
def match_books(texts: tuple[str, ...]) -> tuple[Matches, ...]:
    """Return the families in each of the texts of a message."""
    return tuple(map(load_books().find, texts))


def match_phrases(matches: Matches, name: str, often: Mapping[str, int]) -> Iterator[Finding]:
    """Yield `<name>.<family>` for every matched family, and `<name>.<family>-often` from `often[family]` phrases on."""
    for full_name, match in matches.items():
        book, _, family = full_name.partition(".")
        if book == name:
            facts: dict[str, Fact] = {"words": match.words, "count": match.count}
            yield Finding(full_name, facts=facts)
            if match.count >= often.get(family, match.count + 1):
                yield Finding(f"{full_name}-often", facts=facts)


def match_by_density(view: View, name: str, often: Mapping[str, int]) -> Iterator[Finding]:
    """Yield the findings of `match_phrases`, but require one phrase more per family for each further portion of text.

    Long texts, and texts that only some clients show, are matched in windows, so that no text dilutes another.
    """
    found: dict[str, Finding] = {}
    hidden = view.unseen
    for text, matches in zip(view.folded_texts, match_books(view.folded_texts), strict=True):
        chance = max(0, len(text) - hidden) // PORTION
        hidden = 0  # it stands in the first text alone
        for finding in match_phrases(matches, name, often):
            family = finding.name.partition(".")[2]
            needed = often[family.removesuffix(_OFTEN)] if family.endswith(_OFTEN) else 1
            known = found.get(finding.name)
            if int(finding.facts["count"]) >= needed + chance and (known is None or _count(known) < _count(finding)):
                found[finding.name] = finding
    yield from found.values()


def _count(finding: Finding) -> int:
    return int(finding.facts["count"])
