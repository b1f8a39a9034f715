"""QR codes that are drawn without a picture: with block characters in text, or with the cells of an HTML table.

Security: works on hostile text; looks only where there are many blocks or cells, every pattern is linear and bounded.
"""

import re
from collections.abc import Iterator

from mailwarden.analysis.qr_codes import MIN_SIDE

MAX_SIDE = 400
MIN_BLOCKS = 100
MIN_CELLS = MIN_SIDE * MIN_SIDE
MAX_SOURCE = 2_000_000

Drawing = list[list[bool]]

_BLOCKS = "█▀▄■▓▒"
_HALVES = {"█": (True, True), "■": (True, True), "▓": (True, True), "▀": (True, False), "▄": (False, True)}
_LINE_BREAK = re.compile(r"<(?:br|/div|/p|/tr|/li)\b[^<>]{0,200}+>")
_TAG = re.compile(r"<[^<>]{0,2000}+>")
_ROW = re.compile(r"<tr\b")
_CELL = re.compile(r"<td\b([^<>]{0,500}+)")
_SPAN = re.compile(r"colspan\s{0,3}+=\s{0,3}+[\"']?+(\d{1,3}+)")
_COLOUR = re.compile(r"(?:bgcolor\s{0,3}+=\s{0,3}+|background(?:-color)?\s{0,3}+:\s{0,3}+)[\"']?+(#?[a-z0-9]{1,20}+)")
_DARK = re.compile(r"#?(?:black|[0-5][0-9a-f][0-5][0-9a-f][0-5][0-9a-f]|[0-5][0-5][0-5])$")


def find_text_drawings(text: str) -> Iterator[Drawing]:
    """Yield what block characters draw in a text; `text` has its line breaks."""
    if sum(text.count(block) for block in _BLOCKS) < MIN_BLOCKS:
        return
    lines: list[str] = []
    for line in (*text.splitlines()[:20_000], ""):
        if any(block in line for block in _BLOCKS) and len(line) <= 2 * MAX_SIDE:
            lines.append(line)
        elif lines:
            yield from _readings(lines[:MAX_SIDE])
            lines = []


def find_page_drawings(lower: str) -> Iterator[Drawing]:
    """Yield what the source of a page, in lower case, draws with blocks or with cells."""
    source = lower[:MAX_SOURCE]
    if sum(source.count(block) for block in _BLOCKS) >= MIN_BLOCKS:
        yield from find_text_drawings(_TAG.sub("", _LINE_BREAK.sub("\n", source)).replace("&nbsp;", " "))
    if source.count("<td") >= MIN_CELLS:
        rows: Drawing = []
        for piece in _ROW.split(source)[1:]:
            row = _row_of(piece)
            if len(row) >= MIN_SIDE:
                rows.append(row)
            elif rows:
                yield from (rows[:MAX_SIDE],) if len(rows) >= MIN_SIDE else ()
                rows = []
        if len(rows) >= MIN_SIDE:
            yield rows[:MAX_SIDE]


def _readings(lines: list[str]) -> Iterator[Drawing]:
    """Yield a drawing for each way in which programs draw: two rows a line, or one row a line with wide fields."""
    if 2 * len(lines) >= MIN_SIDE and any("▀" in line or "▄" in line for line in lines):
        halves = [[_HALVES.get(sign, (False, False)) for sign in line] for line in lines]
        yield [[half[which] for half in line] for line in halves for which in (0, 1)]
    elif len(lines) >= MIN_SIDE:
        yield [[sign in _HALVES for sign in line[::2]] for line in lines]


def _row_of(piece: str) -> list[bool]:
    row: list[bool] = []
    for cell in _CELL.findall(piece):
        span = _SPAN.search(cell)
        colour = _COLOUR.search(cell)
        dark = bool(colour and _DARK.match(colour[1]))
        row.extend([dark] * min(int(span[1]) if span else 1, MAX_SIDE))
        if len(row) >= MAX_SIDE:
            break
    return row[:MAX_SIDE]
