"""Finds what a text draws with block characters, and a page with the cells of tables.

Security: hostile text; drawings are bounded, and every pattern is linear.
"""

import re
from collections.abc import Iterator
from itertools import repeat
from typing import TypeVar

from mailwarden.message.coverage import Coverage
from mailwarden.model.place import THE_PAGE, THE_TEXT, Place

MIN_FIELDS = 21  # fields of the smallest code
MIN_BLOCKS = 100
MIN_CELLS = MIN_FIELDS * MIN_FIELDS

Drawing = list[list[bool]]
Row = TypeVar("Row")

_BLOCKS = "█▀▄■▓▒"
_HALVES = {"█": (True, True), "■": (True, True), "▓": (True, True), "▀": (True, False), "▄": (False, True)}
_CHARACTERS = "#@*xX1"  # in place of blocks, two to a field
_LINE_BREAK = re.compile(r"<(?:br|/div|/p|/tr|/li)\b[^<>]{0,200}>")
_TAG = re.compile(r"<[^<>]{0,2000}>")
_ROW = re.compile(r"<tr\b")
_CELL = re.compile(r"<td\b([^<>]{0,500})")
_SPAN = re.compile(r"colspan\s{0,3}=\s{0,3}[\"']?(\d{1,3})")
_COLOUR = re.compile(r"(?:bgcolor\s{0,3}=\s{0,3}|background(?:-color)?\s{0,3}:\s{0,3})[\"']?(#?[a-z0-9]{1,20})")
_CLASS = re.compile(r"class\s{0,3}=\s{0,3}[\"']?([\w-]{1,40})")
_STYLED = re.compile(r"\.([\w-]{1,40})\s{0,9}\{([^{}]{1,500})\}")
_BOX = re.compile(r"<(?:span|div|i|b|p|a)\b([^<>]{0,500})")
_BOX_ROW = re.compile(r"</div>\s{0,20}(?=<div|</div)|<br\b|</p>|</tr>")
_DARK = re.compile(r"#?(?:black|[0-5][0-9a-f][0-5][0-9a-f][0-5][0-9a-f]|[0-5][0-5][0-5])$")


def find_text_drawings(text: str, coverage: Coverage, place: Place = THE_TEXT) -> Iterator[Drawing]:
    """Yield what block characters draw in a text; `text` has its line breaks."""
    if _count_blocks(text) < MIN_BLOCKS:
        for character in _CHARACTERS:
            if text.count(2 * character) >= MIN_BLOCKS // 2:
                yield from _drawn_with(text, character, coverage, place)
        return
    lines: list[str] = []
    for line in (*text.splitlines(), ""):
        if any(block in line for block in _BLOCKS):
            lines.append(coverage.cut(line.rstrip(), "drawing_line", place))
        elif lines:
            yield from _readings(_bounded(lines, coverage, place))
            lines = []


def find_page_drawings(lower: str, coverage: Coverage, place: Place = THE_PAGE) -> Iterator[Drawing]:
    """Yield what the source of a page, in lower case, draws with blocks or with cells."""
    if _count_blocks(lower) >= MIN_BLOCKS:
        text = _TAG.sub("", _LINE_BREAK.sub("\n", lower)).replace("&nbsp;", " ")
        yield from find_text_drawings(text, coverage, place)
    if lower.count("<") < MIN_CELLS:
        return
    if lower.count("<td") >= MIN_CELLS:
        yield from _gathered(_ROW.split(lower)[1:], _CELL, _dark_classes(lower), coverage, place)
    elif max(lower.count("<span"), lower.count("<div"), lower.count("<i ")) >= MIN_CELLS:
        yield from _gathered(_BOX_ROW.split(lower), _BOX, _dark_classes(lower), coverage, place)


def _count_blocks(text: str) -> int:
    return 0 if text.isascii() else sum(text.count(block) for block in _BLOCKS)


def _bounded(rows: list[Row], coverage: Coverage, place: Place) -> list[Row]:
    return list(coverage.first(rows, "drawing_side", place))


def _gathered(
    pieces: list[str], cell: re.Pattern[str], dark: frozenset[str], coverage: Coverage, place: Place
) -> Iterator[Drawing]:
    """Yield the drawings that stand in row after row of cells."""
    rows: Drawing = []
    for piece in (*pieces, ""):
        row = list(coverage.first(_row_of(piece, cell, dark), "drawing_side", place))
        if len(row) >= MIN_FIELDS:
            rows.append(row)
        elif rows:
            yield from (_bounded(rows, coverage, place),) if len(rows) >= MIN_FIELDS else ()
            rows = []


def _dark_classes(source: str) -> frozenset[str]:
    """Return the names of the classes that a page gives a dark ground."""
    rules = ((name, _COLOUR.search(style)) for name, style in _STYLED.findall(source))
    return frozenset(name for name, colour in rules if colour and _DARK.match(colour[1]))


def _drawn_with(text: str, character: str, coverage: Coverage, place: Place) -> Iterator[Drawing]:
    """Yield drawings made of one character and spaces, two characters per module."""
    lines: list[str] = []
    for line in (*text.splitlines(), ""):
        if character in line and not line.replace(character, "").strip(" .0_"):
            lines.append(coverage.cut(line.rstrip(), "drawing_line", place))
        elif lines:
            if len(lines) >= MIN_FIELDS:
                yield [[each == character for each in line[::2]] for line in _bounded(lines, coverage, place)]
            lines = []


def _readings(lines: list[str]) -> Iterator[Drawing]:
    """Yield a drawing for each way in which programs draw: two rows a line, or one row a line with wide fields."""
    if 2 * len(lines) >= MIN_FIELDS and any("▀" in line or "▄" in line for line in lines):
        halves = [[_HALVES.get(character, (False, False)) for character in line] for line in lines]
        yield [[half[which] for half in line] for line in halves for which in (0, 1)]
    elif len(lines) >= MIN_FIELDS:
        yield [[character in _HALVES for character in line[::2]] for line in lines]


def _row_of(piece: str, cell: re.Pattern[str], classes: frozenset[str]) -> Iterator[bool]:
    for attributes in cell.findall(piece):
        span = _SPAN.search(attributes)
        colour = _COLOUR.search(attributes)
        named = _CLASS.search(attributes) if classes else None
        if cell is _BOX and not colour and not named:
            continue  # a box around others
        dark = bool(colour and _DARK.match(colour[1])) or bool(named and named[1] in classes)
        yield from repeat(dark, int(span[1]) if span else 1)
