"""Reads the required literals of a phrase from its pattern: words without which a text cannot match it.

The reader knows the syntax of phrases: letters, groups, alternatives, classes and repetitions, as RE2 reads them.
Unknown syntax requires no literal, so a pattern is at worst tried in vain and never missed.
"""

from collections.abc import Iterable
from itertools import product
from math import prod
from typing import NamedTuple

MOST = 250  # not inspection: of our own patterns, the words that stand for one
FEW = 200  # words that are compared with each other
CLASS = 12  # characters of a class that are listed one by one
SENTENCE_ENDS = ".!?"

Words = frozenset[str]
_NOTHING: Words = frozenset({""})


class Shape(NamedTuple):
    """Properties of all texts that a pattern matches."""

    exact: Words | None = None  # every one of them, where they are few
    needed: Words | None = None  # one of these occurs in each of them
    begins: Words | None = None  # each of them begins with one of these
    ends: Words | None = None  # each of them ends with one of these
    crosses: bool = False  # some of them may contain the end of a sentence

    @property
    def best(self) -> Words | None:
        return _shortest(self.exact) if self.exact and "" not in self.exact else self.needed


UNKNOWN = Shape(crosses=True)


def read_shape(pattern: str) -> Shape:
    """Return the shape of a pattern; unknown syntax has an unknown shape."""
    reader = _Reader(pattern)
    try:
        shape = reader.read_alternatives()
    except (IndexError, ValueError):
        return UNKNOWN
    return shape if reader.place == len(pattern) else UNKNOWN


class _Reader:
    """Goes through a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.place = 0

    def read_alternatives(self) -> Shape:
        shapes = [self._read_sequence()]
        while self._take("|"):
            shapes.append(self._read_sequence())
        return _either(shapes)

    def _read_sequence(self) -> Shape:
        shapes = []
        while self.place < len(self._pattern) and self._pattern[self.place] not in "|)":
            shapes.append(self._read_repeated())
        return _one_after_another(shapes)

    def _read_repeated(self) -> Shape:
        shape = self._read_one()
        while self.place < len(self._pattern) and self._pattern[self.place] in "?*+{":
            least, most = self._read_counts()
            shape = _repeated(shape, least, most)
            self._take("?")  # lazy: the matches are the same
        return shape

    def _read_counts(self) -> tuple[int, int]:
        character = self._next()
        if character != "{":
            return (character == "+"), (1 if character == "?" else MOST)
        end = self._pattern.index("}", self.place)
        least, comma, most = self._pattern[self.place : end].partition(",")
        self.place = end + 1
        return int(least or "0"), int(most or MOST) if comma else int(least)

    def _read_one(self) -> Shape:
        character = self._next()
        if character == "(":
            if self._take("?") and not self._take(":"):
                raise ValueError(self._pattern)
            shape = self.read_alternatives()
            if not self._take(")"):
                raise ValueError(self._pattern)
            return shape
        if character == "[":
            return self._read_class()
        if character == "\\":
            return self._read_escape()
        if character in ".^$":
            return UNKNOWN
        return _characters({character})

    def _read_escape(self) -> Shape:
        character = self._next()
        if character == "b":
            return Shape(_NOTHING, None, _NOTHING, _NOTHING)
        if character == "d":
            return _characters("0123456789")
        return UNKNOWN if character.isalnum() else _characters({character})

    def _read_class(self) -> Shape:
        if self._take("^"):
            self._skip_class()
            return UNKNOWN
        characters: set[str] = set()
        while (character := self._next()) != "]" or not characters:
            if character == "\\":
                escaped = self._next()
                if escaped.isalnum() and escaped != "d":
                    raise ValueError(self._pattern)
                characters |= set("0123456789") if escaped == "d" else {escaped}
            elif character == "[":
                raise ValueError(self._pattern)
            elif self._pattern[self.place] == "-" and self._pattern[self.place + 1] != "]":
                self.place += 1
                characters |= set(map(chr, range(ord(character), min(ord(self._next()), ord(character) + 0x10000) + 1)))
            else:
                characters.add(character)
        return _characters(characters)

    def _skip_class(self) -> None:
        while self._next() != "]":
            pass

    def _take(self, character: str) -> bool:
        taken = self._pattern.startswith(character, self.place)
        self.place += taken
        return taken

    def _next(self) -> str:
        self.place += 1
        return self._pattern[self.place - 1]


def _characters(characters: Iterable[str]) -> Shape:
    words = frozenset(characters)
    few = words if len(words) <= CLASS else None
    return Shape(few, few, few, few, crosses=any(end in words for end in SENTENCE_ENDS))


def _either(shapes: list[Shape]) -> Shape:
    if len(shapes) == 1:
        return shapes[0]
    return Shape(
        exact=_union([shape.exact for shape in shapes]),
        needed=_union([shape.best for shape in shapes]),
        begins=_union([shape.begins for shape in shapes]),
        ends=_union([shape.ends for shape in shapes]),
        crosses=any(shape.crosses for shape in shapes),
    )


def _union(sets: list[Words | None]) -> Words | None:
    found: set[str] = set()
    for words in sets:
        if words is None:
            return None
        found |= words
    return frozenset(found) if len(found) <= MOST else None


def _one_after_another(shapes: list[Shape]) -> Shape:
    """Join what is known of the pieces as long as the words stay few; the rarest of what was joined is needed."""
    run: Words = _NOTHING
    exact = True
    begins: Words | None = None
    candidates: list[Words] = []
    for shape in shapes:
        joined = _join(run, shape.exact)
        if joined is not None:
            run = joined
            continue
        begins = run if exact and "" not in run else begins
        exact = False
        candidates += [run, shape.best or _NOTHING, _touching(run, shape)]
        run = _join(_last_signs(run), shape.exact) or shape.exact or shape.ends or _NOTHING
    candidates.append(run)
    needed = min(map(_shortest, (words for words in candidates if "" not in words)), key=commonness, default=None)
    crosses = any(shape.crosses for shape in shapes)
    return Shape(
        exact=run if exact else None,
        needed=needed,
        begins=run if exact else begins,
        ends=run if exact or "" not in run else None,
        crosses=crosses,
    )


def _touching(run: Words, shape: Shape) -> Words:
    """Return the words across the border of two pieces, each cut so far that the words stay few."""
    after = shortest_beginnings(shape.exact or shape.begins or _NOTHING)
    return _join(run, after, 8 * MOST) or _join(_last_signs(run), after) or _NOTHING


def _last_signs(words: Words) -> Words:
    return frozenset(word[-1:] for word in words)


def shortest_beginnings(words: Words) -> Words:
    kept: list[str] = []
    for word in sorted(words):
        if not kept or not word.startswith(kept[-1]):
            kept.append(word)
    return frozenset(kept)


def _shortest(words: Words) -> Words:
    """Leave out the words that hold another: where they stand, the other does."""
    kept: list[str] = []
    words = shortest_beginnings(words)
    if len(words) > FEW:
        return words
    for word in sorted(words, key=len):
        if not any(other in word for other in kept):
            kept.append(word)
    return frozenset(kept)


def _join(left: Words, right: Words | None, most: int = MOST) -> Words | None:
    if right is None or len(left) * len(right) > most:
        return None
    return frozenset(a + b for a, b in product(left, right))


def _repeated(shape: Shape, least: int, most: int) -> Shape:
    if least == most == 1:
        return shape
    exact: Words | None = None
    if shape.exact is not None and most <= 2:
        turns = [_NOTHING, shape.exact, _join(shape.exact, shape.exact)]
        exact = _union(list(turns[least : most + 1]))
    if not least:
        return Shape(exact, None, exact, exact, shape.crosses)
    return Shape(exact, shape.best, shape.begins, shape.ends, shape.crosses)


def commonness(words: Iterable[str]) -> float:
    """Return roughly how often one of the words begins at a letter of a text; 1.0 if one of them is empty."""
    return sum(prod(map(_chance, word)) * (1 if len(word.strip()) > 2 else 4) for word in words)


def _chance(character: str) -> float:
    if not character.isascii():
        return 0.003
    if character.isalpha():
        return 0.07
    return 0.17 if character == " " else 0.005
