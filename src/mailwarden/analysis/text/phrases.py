"""Phrase books: families of phrases as data, matched in one linear pass over the text that a person reads.

A phrase is written in lower case; `..` stands for up to 40 characters of the same sentence, and RE2 syntax
(`(a|b)`, `s?`, `\\d`) is allowed. Accents, wide forms and invisible characters are folded on both sides.

Security: the text is hostile, the phrases are ours; RE2 is linear, reported words are cut.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from string import ascii_letters, digits
from typing import Protocol, cast

import ahocorasick
import re2
from msgspec import Struct, convert
from ruamel.yaml import YAML

from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.text.literals import SENTENCE_ENDS, Shape, commonness, read_shape, shortest_beginnings
from mailwarden.analysis.view import View
from mailwarden.message.limits import SHOWN
from mailwarden.model.evidence import Fact, Finding
from mailwarden.settings.compiled import CompiledFile

PHRASE_MEMORY = 512 * 1024  # RE2 drops its states beyond this size and rebuilds them
SELDOM = 0.004
IN_FRONT = 0.2  # of the letters of a text begin a word
_GAP = f"[^{SENTENCE_ENDS}]{{0,40}}"
_ANY_GAP = f"[^{SENTENCE_ENDS}]*"
_SENTENCE_END = re.compile(f"[{SENTENCE_ENDS}]")
_BOOK = "_phrases.yml"
_FOLDER = Path(__file__).parent
_LATIN = re.compile(r"[a-z0-9]|\\d")
_WORD_BEGINS = r"\b"
_WORD_CHARACTERS = frozenset(f"{ascii_letters}{digits}_")  # the word characters of RE2
PORTION = 2_500  # characters beyond which one more phrase of a family may be chance
_OFTEN = "-often"


class _Pattern(Protocol):
    def search(self, text: str) -> re.Match[str] | None: ...


class PhraseMatch(Struct, frozen=True):
    """A matched family: the number of its phrases, and the words of the first."""

    count: int
    words: str


class PhraseBook:
    """Families of phrases, each found or not.

    One pass finds the required literals of all phrases. A phrase is tried only on sentences that contain all of its
    literals, because its gaps end with the sentence. The few phrases that may cross the end of a sentence are tried on
    the whole text.
    """

    def __init__(self, phrases: Sequence["Phrase"]) -> None:
        self.phrases = phrases
        self._patterns: dict[int, tuple[_Pattern | None, _Pattern]] = {}  # of the phrases tried so far: most never are
        self._waiting: dict[str, list[int]] = {}  # the phrases to try once a piece occurs
        words: dict[str, tuple[set[str], set[str]]] = {}  # the pieces that it may belong to anywhere, and in front
        for number, phrase in enumerate(self.phrases):
            for piece, literal in phrase.needed.items():
                for word in literal.words:
                    words.setdefault(word, (set(), set()))[literal.in_front].add(piece)
            self._waiting.setdefault(phrase.rarest, []).append(number)
        self._always = self._waiting.pop("", [])
        self._rarest = frozenset(self._waiting)
        self._automaton = ahocorasick.Automaton()
        for word, (anywhere, in_front) in words.items():
            self._automaton.add_word(word, (len(word), tuple(anywhere), tuple(in_front)))
        self._automaton.make_automaton()
        self.families = tuple(dict.fromkeys(phrase.family for phrase in phrases))

    def find(self, text: str) -> dict[str, PhraseMatch]:
        """Return the families whose phrases occur in a folded text, in the order of the book."""
        found: dict[int, str] = {}
        everywhere: set[str] = set()
        for sentence, pieces in self._sentences(text):
            everywhere |= pieces
            for number in self._worth_trying(pieces, crossing=False):
                if number not in found:
                    self._try(number, sentence, found)
        for number in (*self._worth_trying(everywhere, crossing=True), *self._always):
            self._try(number, text, found)
        by_family: dict[str, list[str]] = {}
        for number in sorted(found):
            by_family.setdefault(self.phrases[number].family, []).append(found[number])
        return {family: PhraseMatch(len(words), words[0]) for family, words in by_family.items()}

    def _sentences(self, text: str) -> Iterator[tuple[str, set[str]]]:
        """Yield the sentences that have words of phrases, each with the pieces that these words may belong to."""
        if not self._automaton:
            return
        ends = (match.start() for match in _SENTENCE_END.finditer(text))
        start, end = 0, next(ends, len(text))
        pieces: set[str] = set()
        for place, (length, anywhere, in_front) in self._automaton.iter(text):
            if place > end:
                if pieces:
                    yield text[start:end], pieces
                    pieces = set()
                while place > end:
                    start, end = end + 1, next(ends, len(text))
            if anywhere:
                pieces.update(anywhere)
            if in_front and (place < length or text[place - length] not in _WORD_CHARACTERS):
                pieces.update(in_front)
        if pieces:
            yield text[start:end], pieces

    def _worth_trying(self, pieces: set[str], *, crossing: bool) -> Iterator[int]:
        for piece in pieces & self._rarest:
            for number in self._waiting[piece]:
                phrase = self.phrases[number]
                if phrase.crosses is crossing and pieces.issuperset(phrase.needed):
                    yield number

    def _try(self, number: int, text: str, found: dict[int, str]) -> None:
        if number not in self._patterns:
            pieces = self.phrases[number].pieces
            order = _compile(_ANY_GAP.join(pieces)) if len(pieces) > 1 else None
            self._patterns[number] = (order, _compile(_GAP.join(pieces)))
        order, pattern = self._patterns[number]
        # Counting the characters of a gap is slow: first check whether the pieces occur in their order at all.
        if (order is None or order.search(text)) and (match := pattern.search(text)):
            found[number] = match[0][: SHOWN.word]


class _Literal(Struct, frozen=True):
    """Words of which one occurs in every text that a piece matches; `in_front`: only at the start of a word."""

    words: tuple[str, ...]
    in_front: bool

    @property
    def commonness(self) -> float:
        return commonness(self.words) * (IN_FRONT if self.in_front else 1)


class Phrase(Struct, frozen=True):
    """A phrase and the literals that a sentence must contain before the phrase is tried on it."""

    family: str
    pieces: tuple[str, ...]
    crosses: bool  # it may match across the end of a sentence
    rarest: str  # the piece with the rarest literal
    needed: dict[str, _Literal]  # by piece


def read_phrase(family: str, phrase: str) -> Phrase:
    """Return a phrase of a book with the literals that it needs."""
    pieces = tuple(_begin(piece.strip()) for piece in fold(phrase).split(".."))
    shapes = {piece: read_shape(piece.removeprefix(_WORD_BEGINS)) for piece in pieces}
    literals = {piece: literal for piece, shape in shapes.items() if (literal := _read_literal(piece, shape))}
    rarest_first = sorted(literals, key=lambda piece: literals[piece].commonness)
    # A word that occurs in every text selects nothing.
    seldom = [piece for piece in rarest_first if literals[piece].commonness < SELDOM]
    return Phrase(
        family,
        pieces,
        crosses=any(shape.crosses for shape in shapes.values()),
        rarest=rarest_first[0] if rarest_first else "",
        needed={piece: literals[piece] for piece in (*rarest_first[:2], *seldom)},
    )


def _read_literal(piece: str, shape: Shape) -> _Literal | None:
    """Return the rarer of the words that a piece holds and those that it begins with at the beginning of a word."""
    literals = [_Literal(tuple(sorted(shape.best)), in_front=False)] if shape.best else []
    beginnings = shape.exact or shape.begins
    if piece.startswith(_WORD_BEGINS) and beginnings and all(word[:1] in _WORD_CHARACTERS for word in beginnings):
        literals.append(_Literal(tuple(sorted(shortest_beginnings(beginnings))), in_front=True))
    return min(literals, key=lambda literal: literal.commonness, default=None)


def _begin(piece: str) -> str:
    """Anchor a piece that begins with a Latin letter or a digit at the start of a word."""
    return rf"{_WORD_BEGINS}(?:{piece})" if all(_LATIN.match(start) for start in _starts(piece)) else f"(?:{piece})"


def _starts(piece: str) -> Iterator[str]:
    """Yield how a piece may begin: a group at its front begins as any of its alternatives does."""
    if not piece.startswith("("):
        yield piece
        return
    depth = 0
    start = 1
    for place, character in enumerate(piece):
        depth += (character == "(") - (character == ")")
        if (character == "|" and depth == 1) or (character == ")" and depth == 0):
            yield from _starts(piece[start:place])
            start = place + 1
        if depth == 0:
            return


def _compile(pattern: str) -> _Pattern:
    options = re2.Options()
    options.max_mem = PHRASE_MEMORY
    options.log_errors = False
    return cast("_Pattern", re2.compile(pattern, options))


@cache
def load_books() -> PhraseBook:
    """Return all books in one, from the compiled file if it was made from the current books."""
    return PhraseBook(COMPILED.read() or read_books())


def read_books() -> tuple[Phrase, ...]:
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
    for name in ("phrases.py", "literals.py", "folding.py"):
        yield _FOLDER / name


def _books() -> list[Path]:
    return sorted((_FOLDER.parent / "analyzers").glob(f"*{_BOOK}"))


# Reading the books takes a process two seconds.
COMPILED = CompiledFile(_FOLDER / "__pycache__" / "phrases.msgpack", tuple[Phrase, ...], _sources)


@lru_cache(maxsize=128)  # every analyzer of phrases matches the same texts, one after the other
def match_books(text: str) -> dict[str, PhraseMatch]:
    return load_books().find(text)


def match_phrases(text: str, name: str, often: Mapping[str, int]) -> Iterator[Finding]:
    """Yield `<name>.<family>` for every matched family, and `<name>.<family>-often` from `often[family]` phrases on."""
    for full_name, match in match_books(text).items():
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
    hidden = unseen(view)
    for text in view.folded_texts:
        chance = max(0, len(text) - hidden) // PORTION
        hidden = 0  # it stands in the first text alone
        for finding in match_phrases(text, name, often):
            family = finding.name.partition(".")[2]
            needed = often[family.removesuffix(_OFTEN)] if family.endswith(_OFTEN) else 1
            known = found.get(finding.name)
            if int(finding.facts["count"]) >= needed + chance and (known is None or _count(known) < _count(finding)):
                found[finding.name] = finding
    yield from found.values()


def _count(finding: Finding) -> int:
    return int(finding.facts["count"])


def unseen(view: View) -> int:
    """Return how many characters of the body's pages are not shown, too small or white."""
    documents = (page.document for page in view.pages if not page.attached)
    return sum(document.gone_text + document.tiny_text + document.pale_text for document in documents)
