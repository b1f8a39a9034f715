"""Books of phrases: families of words as data, found in one linear pass over what a person reads.

A phrase is written in lower case; `..` stands for up to 40 characters of the same sentence, and what RE2 knows
(`(a|b)`, `s?`, `\\d`) may stand in it. Accents, wide forms and invisible characters are folded away on both sides.

Security: the text is hostile, the phrases are ours; RE2 is linear, the text is cut, what is told of it is cut.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Protocol, cast

import re2
from msgspec import Struct, convert
from ruamel.yaml import YAML

from mailwarden.analysis.folding import fold
from mailwarden.analysis.view import View
from mailwarden.model.evidence import Fact, Finding

SET_MEMORY = 16 * 1024 * 1024  # of one book; what a hostile text makes beyond it is thrown away and made again
PHRASE_MEMORY = 512 * 1024
TOLD = 80
_GAP = "[^.!?]{0,40}"
_LATIN = re.compile(r"[a-z0-9]|\\d")


class _Set(Protocol):
    def Add(self, pattern: str) -> int: ...  # noqa: N802 - re2's own name

    def Compile(self) -> None: ...  # noqa: N802 - re2's own name

    def Match(self, text: str) -> list[int]: ...  # noqa: N802 - re2's own name


class _Pattern(Protocol):
    def search(self, text: str) -> re.Match[str] | None: ...


class Heard(Struct, frozen=True):
    """One family that was found: how many of its phrases, and the words of the first."""

    count: int
    words: str


class PhraseBook:
    """Families of phrases, each found or not.

    One set holds what stands between the gaps of all phrases; only phrases all of whose pieces are there are tried
    whole, because a set with gaps would outgrow any memory.
    """

    def __init__(self, families: Mapping[str, tuple[str, ...]]) -> None:
        self._set = cast("_Set", re2.Set.SearchSet(_options(SET_MEMORY)))
        self._phrases = [_Phrase(family, phrase) for family, phrases in families.items() for phrase in phrases]
        pieces = sorted({piece for phrase in self._phrases for piece in phrase.pieces})
        for piece in pieces:
            self._set.Add(piece)
        self._set.Compile()
        self._pieces = pieces
        self.families = tuple(families)

    def find(self, text: str) -> dict[str, Heard]:
        """Return the families whose phrases stand in a folded text, in the order of the book."""
        there = {self._pieces[index] for index in self._set.Match(text) or ()}
        found: dict[str, list[str]] = {}
        for phrase in self._phrases:
            if there.issuperset(phrase.pieces) and (match := _pattern(phrase.pattern).search(text)):
                found.setdefault(phrase.family, []).append(match[0][:TOLD])
        return {family: Heard(len(words), words[0]) for family, words in found.items()}


class _Phrase:
    def __init__(self, family: str, phrase: str) -> None:
        self.family = family
        self.pieces = tuple(_begin(piece.strip()) for piece in fold(phrase).split(".."))
        self.pattern = _GAP.join(self.pieces)


def _begin(piece: str) -> str:
    """Let what begins with a Latin letter or a digit begin at a word."""
    return rf"\b(?:{piece})" if all(_LATIN.match(start) for start in _starts(piece)) else f"(?:{piece})"


def _starts(piece: str) -> Iterator[str]:
    """Yield how a piece may begin: a group at its front begins as any of its alternatives does."""
    if not piece.startswith("("):
        yield piece
        return
    depth = 0
    start = 1
    for place, sign in enumerate(piece):
        depth += (sign == "(") - (sign == ")")
        if (sign == "|" and depth == 1) or (sign == ")" and depth == 0):
            yield from _starts(piece[start:place])
            start = place + 1
        if depth == 0:
            return


def _options(memory: int) -> object:
    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    return options


@cache
def _pattern(pattern: str) -> _Pattern:
    return cast("_Pattern", re2.compile(pattern, _options(PHRASE_MEMORY)))


@cache
def load_book(name: str) -> PhraseBook:
    """Read the book `<name>_phrases.yml` beside the analyzers, once."""
    text = files("mailwarden.analysis.analyzers").joinpath(f"{name}_phrases.yml").read_text("utf-8")
    families = convert(YAML(typ="safe").load(text), dict[str, str])
    return PhraseBook({family: tuple(lines.splitlines()) for family, lines in families.items()})


def hear(view: View, name: str, often: Mapping[str, int]) -> Iterator[Finding]:
    """Yield `<name>.<family>` for every family heard, and `<name>.<family>-often` where as many phrases as told are."""
    for family, heard in load_book(name).find(view.folded_text).items():
        facts: dict[str, Fact] = {"words": heard.words, "count": heard.count}
        yield Finding(f"{name}.{family}", facts=facts)
        if heard.count >= often.get(family, heard.count + 1):
            yield Finding(f"{name}.{family}-often", facts=facts)
