"""Finds QR codes in images, PDF pages, SVG shapes, and drawings made of text or table cells.

Security: decoders of images, PDF and codes are native code on hostile bytes: only inside a killable worker. Pixels,
tiles, pages, shapes and time are bounded by the message's limits, every pattern is linear, and skipped content is
recorded as missed.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

import zxingcpp
from PIL import Image, ImageDraw, ImageOps

from mailwarden.files.images import MIN_SIDE, WORKING_PIXELS, PictureClock, read_frames, shrink
from mailwarden.files.pdf.document import OpenPdf, open_pdf
from mailwarden.message.coverage import Coverage
from mailwarden.model.place import THE_PAGE, THE_TEXT, WHOLE_MESSAGE, Place

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

# A page beyond one of these is rendered and searched like any other.
FEW_OBJECTS = 3_000
FEW_RULES = 100  # lines and frames that are drawn
FEW_SEGMENTS = 10  # of one of them
TEXT_LINE = 20  # points from the top of a line to its bottom; a code that people can scan is higher
TEXT_PAGE_SIDE = 1_500  # points of a page that is looked at this way
MANY_LETTERS = 20  # different ones on a page of words; a code in letters has few


def is_lines_of_text(page: "PdfPage") -> bool:
    width, height = page.get_size()
    return max(width, height) <= TEXT_PAGE_SIDE and _is_made_of_text(page) and _shows_only_lines(page)


def is_made_of_words(page: "PdfPage") -> bool:
    """Return whether a page has only words, without rendering it; this makes long books affordable."""
    if not _is_made_of_text(page):
        return False
    text_page = page.get_textpage()
    try:
        letters = text_page.get_text_range(0, max(text_page.count_chars(), 0)) if text_page.count_chars() > 0 else ""
    finally:
        text_page.close()
    return not letters or len(set(letters)) >= MANY_LETTERS


def _is_made_of_text(page: "PdfPage") -> bool:
    """Return whether there is nothing but text, a few straight lines, and links, which are not seen."""
    import pypdfium2.raw as pdfium  # noqa: PLC0415 - takes longer to import than most messages take to examine

    rules = 0
    for number, item in enumerate(page.get_objects(max_depth=1)):
        if number >= FEW_OBJECTS:
            return False
        if item.type == pdfium.FPDF_PAGEOBJ_TEXT:
            continue
        rules += 1
        simple = item.type == pdfium.FPDF_PAGEOBJ_PATH and pdfium.FPDFPath_CountSegments(item.raw) <= FEW_SEGMENTS
        if not simple or rules > FEW_RULES:
            return False
    return pdfium.FPDFPage_GetAnnotCount(page.raw) <= FEW_RULES and all(
        _is_link(page, number) for number in range(pdfium.FPDFPage_GetAnnotCount(page.raw))
    )


def _is_link(page: "PdfPage", number: int) -> bool:
    import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

    note = pdfium.FPDFPage_GetAnnot(page.raw, number)
    if not note:
        return False
    try:
        return bool(pdfium.FPDFAnnot_GetSubtype(note) == pdfium.FPDF_ANNOT_LINK)
    finally:
        pdfium.FPDFPage_CloseAnnot(note)


def _shows_only_lines(page: "PdfPage") -> bool:
    """Return whether rows of one colour stand between all that is shown, as between lines."""
    picture = page.render(scale=1, grayscale=True)
    pixels, width, stride = bytes(picture.buffer), picture.width, picture.stride
    high = 0
    for start in range(0, picture.height * stride, stride):
        row = pixels[start : start + width]
        high = 0 if row == row[:1] * width else high + 1
        if high > TEXT_LINE:
            return False
    return True


SMALL_SIDE = 200
PHOTOGRAPH = 0.35  # of the pixels; codes have up to half of it, however badly they were saved
_FRAME = 16  # pixels of white around a small picture
_MATRIX_PIXELS = 1_000_000  # in which Data Matrix is searched, which costs three times as much as QR
_FAINT = 128  # shades between the darkest and the lightest pixel of a picture with little contrast
_TILE = 1_600
_OVERLAP = 400
_SHARP_PAGES = 20  # of a PDF that are rendered in twice their size
_SHARP, _COARSE = 2.0, 1.25
_SQUARE = (0.8, 1.25)  # the sides of a code, one by the other

_QR = (zxingcpp.BarcodeFormat.QRCode, zxingcpp.BarcodeFormat.MicroQRCode)
_CODES = zxingcpp.BarcodeFormats(list(_QR))
_MATRIX = zxingcpp.BarcodeFormats([zxingcpp.BarcodeFormat.DataMatrix])
_EVERY = zxingcpp.BarcodeFormats([*_QR, zxingcpp.BarcodeFormat.DataMatrix])


def read_picture(content: bytes, kind: str, clock: PictureClock, place: Place = WHOLE_MESSAGE) -> tuple[str, ...]:
    """Return the texts of the codes in all frames of a picture."""
    found: dict[str, None] = {}
    for grey in read_frames(content, kind, clock, place):
        texts = read_image(grey) or _read_tiles(grey, clock, place)
        found.update(dict.fromkeys(texts))
    return tuple(found)


def _read_tiles(grey: Image.Image, clock: PictureClock, place: Place) -> Iterator[str]:
    """Look at a large drawing in full size, tile by tile: made smaller, a small code on it is lost."""
    if grey.width * grey.height <= WORKING_PIXELS or is_photograph(shrink(grey)):
        return
    step = _TILE - _OVERLAP
    corners = ((x, y) for y in range(0, grey.height, step) for x in range(0, grey.width, step))
    for x, y in clock.coverage.first(corners, "picture_tiles", place):
        if clock.is_over(place):
            return
        tile = grey.crop((x, y, min(x + _TILE, grey.width), min(y + _TILE, grey.height)))
        low, high = tile.getextrema()
        if low != high:
            yield from _scan(tile)


def read_pieces(pieces: Sequence[Image.Image]) -> tuple[str, ...]:
    """Return the texts of a code that was cut into pictures, which a page puts together again."""
    number = len(pieces)
    for columns in range(1, number + 1):
        if number % columns == 0 and (joined := _join(pieces, columns)) and (found := read_image(joined)):
            return found
    return ()


def _join(pieces: Sequence[Image.Image], columns: int) -> Image.Image | None:
    """Return the pieces beside and below each other where they make a square, or None."""
    rows = [pieces[start : start + columns] for start in range(0, len(pieces), columns)]
    widths, heights = [piece.width for piece in rows[0]], [row[0].height for row in rows]
    width, height = sum(widths), sum(heights)
    fits = all(
        abs(piece.width - widths[x]) <= 2 and abs(piece.height - heights[y]) <= 2
        for y, row in enumerate(rows)
        for x, piece in enumerate(row)
    )
    if not fits or not _SQUARE[0] <= width / height <= _SQUARE[1] or width * height > WORKING_PIXELS:
        return None
    joined = Image.new("L", (width, height), 255)
    for y, row in enumerate(rows):
        for x, piece in enumerate(row):
            joined.paste(piece, (sum(widths[:x]), sum(heights[:y])))
    return joined


def read_image(grey: Image.Image) -> tuple[str, ...]:
    """Return the texts of the codes in a grey image."""
    grey = shrink(grey)
    low, high = grey.getextrema()
    if low == high:
        return ()
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and high - low < _FAINT:
        grey = ImageOps.autocontrast(grey)
    found = _scan(grey)
    small = min(grey.size) <= SMALL_SIDE and max(grey.size) <= 4 * SMALL_SIDE
    if not found and small and not is_photograph(grey):
        # A code without a quiet zone, or with modules of a pixel or two: both are given room.
        larger = grey.resize((grey.width * 2, grey.height * 2), Image.Resampling.NEAREST)
        framed = Image.new("L", (larger.width + 2 * _FRAME, larger.height + 2 * _FRAME), 255)
        framed.paste(larger, (_FRAME, _FRAME))
        found = _scan(framed)
    return found


def read_drawing(rows: Sequence[Sequence[bool]]) -> tuple[str, ...]:
    """Return the texts of the codes in a drawing of dark and light fields."""
    width = max((len(row) for row in rows), default=0)
    if width < MIN_SIDE or len(rows) < MIN_SIDE:
        return ()
    fields = bytes(0 if dark else 255 for row in rows for dark in (*row, *(False,) * (width - len(row))))
    try:
        return read_image(Image.frombytes("L", (width, len(rows)), fields))
    except (ValueError, RuntimeError):
        return ()


def read_pdf(
    content: bytes,
    clock: PictureClock,
    password: str = "",
    place: Place = WHOLE_MESSAGE,
    opened: OpenPdf | None = None,
) -> Iterator[tuple[int, str]]:
    """Yield the number of the page and the text of each code in a PDF; one that does not open is recorded elsewhere.

    `opened` is the document as another reader left it, and is closed here.
    """
    if opened is None or opened.is_closed:
        document, _, _ = open_pdf(content, lambda: (password,) if password else ())
        if document is None:
            return
        opened = OpenPdf(document)
    try:
        for number in clock.coverage.first(range(len(opened.document)), "pdf_pages", place):
            if clock.is_over(place):
                return
            for text in _read_page(opened, number):
                yield number + 1, text
    finally:
        opened.close()


def _read_page(opened: OpenPdf, number: int) -> tuple[str, ...]:
    try:
        page = opened.load_page(number)
    except Exception:  # recorded by the reader of its links
        return ()
    try:
        width, height = page.get_size()
        if width < 1 or height < 1 or (number >= _SHARP_PAGES and is_made_of_words(page)) or is_lines_of_text(page):
            return ()
        sharp = _SHARP if number < _SHARP_PAGES else _COARSE
        scale = min(sharp, (WORKING_PIXELS / (width * height)) ** 0.5)
        return read_image(page.render(scale=scale, grayscale=True).to_pil().convert("L"))
    finally:
        page.close()


def is_photograph(grey: Image.Image) -> bool:
    """Return whether much of a picture is neither dark nor light, as in no code that fills it."""
    counts = grey.histogram()
    used = [shade for shade, count in enumerate(counts) if count]
    third = (used[-1] - used[0]) // 3
    return sum(counts[used[0] + third : used[-1] - third + 1]) > PHOTOGRAPH * grey.width * grey.height


def _scan(grey: Image.Image) -> tuple[str, ...]:
    pixels = grey.width * grey.height
    if pixels <= _MATRIX_PIXELS:
        return tuple(code.text for code in zxingcpp.read_barcodes(grey, formats=_EVERY) if code.text)
    codes = [code.text for code in zxingcpp.read_barcodes(grey, formats=_CODES)]
    factor = (_MATRIX_PIXELS / pixels) ** 0.5
    grey = grey.resize((max(1, int(grey.width * factor)), max(1, int(grey.height * factor))), reducing_gap=2.0)
    codes += [code.text for code in zxingcpp.read_barcodes(grey, formats=_MATRIX)]
    return tuple(text for text in codes if text)


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


MIN_SHAPES = 10
MANY_CORNERS = 1_000  # of one shape that is no part of a code
SIDE = 900  # pixels of the picture that is made
_MARGIN = 40

Point = tuple[float, float]
Shape = tuple[Point, ...]

_SVG = re.compile(r"<svg\b", re.IGNORECASE)
_ELEMENT = re.compile(r"<(rect|path|circle|ellipse|polygon)\b([^<>]+)>", re.IGNORECASE)
_FIELD = re.compile(
    r"(?<![\w-])(x|y|width|height|d|cx|cy|r|rx|ry|points|transform|fill|style|stroke|stroke-width)\s{0,3}=\s{0,3}[\"']([^\"']+)[\"']",
    re.IGNORECASE,
)
_LIGHT = re.compile(r"(?:^|fill\s{0,3}:)\s{0,3}(?:#f{3}\b|#f{6}|white|none|transparent)", re.IGNORECASE)
_STEP = re.compile(
    r"([MmLlHhVvZzCcSsQqTtAa])|([-+]?(?:\d{1,9}\.?\d{0,9}|\.\d{1,9})(?:e[-+]?\d{1,2})?)|([A-DF-Za-df-z])"
)
_TAKES = {"m": 2, "l": 2, "h": 1, "v": 1, "z": 0, "c": 6, "s": 4, "q": 4, "t": 2, "a": 7}
_TRANSLATED = re.compile(r"translate\(\s{0,9}([-+.\de]{1,20})[\s,]{0,9}([-+.\de]{0,20})", re.IGNORECASE)


def read_vectors(source: str, coverage: Coverage, place: Place = THE_PAGE) -> Iterator[str]:
    """Yield the texts of the codes that the drawings of a page show; `source` is as it was written."""
    for drawing in _SVG.split(source)[1:]:
        shapes = _shapes(drawing, coverage, place)
        if shapes and sum(map(len, shapes)) >= 4 * MIN_SHAPES:
            yield from read_image(_draw(shapes, coverage, place))


def _shapes(drawing: str, coverage: Coverage, place: Place) -> list[Shape]:
    shapes: list[Shape] = []
    points = 0
    for element in coverage.first(_ELEMENT.finditer(drawing), "vector_shapes", place):
        fields = {key.lower(): value for key, value in _FIELD.findall(element[2])}
        if stroke := _stroke(fields):
            found: Iterable[Shape] = (_bar(line, stroke) for line in _outlines(fields.get("d", "")))
        elif _LIGHT.search(fields.get("fill", "")) or _LIGHT.search(fields.get("style", "")):
            continue
        else:
            found = _drawn(element[1].lower(), fields)
        dx, dy = _offset(fields)
        for shape in found:
            points += len(shape)
            if points > coverage.limits.vector_points:
                coverage.beyond("vector_points", place)
                return shapes
            if 2 < len(shape) <= MANY_CORNERS:
                shapes.append(tuple((x + dx, y + dy) for x, y in shape) if dx or dy else shape)
    return shapes


def _drawn(name: str, fields: dict[str, str]) -> Iterable[Shape]:
    if name == "rect":
        return (_rectangle(fields),)
    if name in {"circle", "ellipse"}:  # round modules are read as square ones
        x, y = _number(fields.get("cx", "0")), _number(fields.get("cy", "0"))
        across, down = (_number(fields.get(key, fields.get("r", ""))) for key in ("rx", "ry"))
        return (((x - across, y - down), (x + across, y - down), (x + across, y + down), (x - across, y + down)),)
    return _outlines("M" + fields.get("points", "") if name == "polygon" else fields.get("d", ""))


def _offset(fields: dict[str, str]) -> Point:
    """Return by how much a shape is moved."""
    moved = _TRANSLATED.search(fields.get("transform", ""))
    return (_number(moved[1]), _number(moved[2])) if moved else (0.0, 0.0)


def _rectangle(fields: dict[str, str]) -> Shape:
    left, top = _number(fields.get("x", "0")), _number(fields.get("y", "0"))
    right, bottom = left + _number(fields.get("width", "")), top + _number(fields.get("height", ""))
    return ((left, top), (right, top), (right, bottom), (left, bottom)) if right > left and bottom > top else ()


def _stroke(fields: dict[str, str]) -> float:
    """Return how wide the strokes of a path are that is drawn by them, or 0."""
    colour = fields.get("stroke", "")
    if not colour or _LIGHT.search(colour) or "d" not in fields:
        return 0.0
    return _number(fields.get("stroke-width", "1"))


def _bar(line: Shape, width: float) -> Shape:
    """Return the rectangle that a straight stroke along one axis fills, or nothing."""
    if len(line) != 2:
        return ()
    (left, top), (right, bottom) = line
    half = width / 2
    if top == bottom:
        return ((left, top - half), (right, top - half), (right, top + half), (left, top + half))
    if left == right:
        return ((left - half, top), (left + half, top), (left + half, bottom), (left - half, bottom))
    return ()


def _number(text: str) -> float:
    match = _STEP.match(text.strip()[:20])
    return float(match[2]) if match and match[2] else 0.0


def _outlines(steps: str) -> Iterator[Shape]:
    """Yield the outlines that a path goes along; of a curve, its end, as modules with round corners have them."""
    shape: list[Point] = []
    x = y = 0.0
    for command, numbers in _commands(steps):
        is_relative, kind = command.islower(), command.lower()
        if kind in "mz" and shape:
            yield tuple(shape)
            if kind == "z":
                x, y = shape[0]
            shape = []
        if kind == "h":
            x = numbers[0] + (x if is_relative else 0)
        elif kind == "v":
            y = numbers[0] + (y if is_relative else 0)
        elif kind != "z":
            x, y = numbers[-2] + (x if is_relative else 0), numbers[-1] + (y if is_relative else 0)
        if kind != "z":
            shape = shape or ([] if kind == "m" else [(x, y)])
            shape.append((x, y))
    if shape:
        yield tuple(shape)


def _commands(steps: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield each step with its numbers; numbers that go on repeat the step, and after a move draw lines."""
    command = ""
    numbers: list[float] = []
    for match in _STEP.finditer(steps):
        if match[3]:
            return
        if match[1]:
            command, numbers = match[1], []
            if command in "Zz":
                yield command, ()
            continue
        numbers.append(float(match[2]))
        if command and len(numbers) == _TAKES[command.lower()]:
            yield command, tuple(numbers)
            numbers = []
            command = {"M": "L", "m": "l"}.get(command, command)


def _draw(shapes: list[Shape], coverage: Coverage, place: Place) -> Image.Image:
    """Return the shapes in black on white, as large as the picture is."""
    across = [point[0] for shape in shapes for point in shape]
    down = [point[1] for shape in shapes for point in shape]
    left, top = min(across), min(down)
    scale = SIDE / max(max(across) - left, max(down) - top, 1e-6)
    picture = Image.new("L", (SIDE + 2 * _MARGIN, SIDE + 2 * _MARGIN), 255)
    pen = ImageDraw.Draw(picture)
    painted = 0
    for shape in shapes:
        corners = [(_MARGIN + round((x - left) * scale), _MARGIN + round((y - top) * scale)) for x, y in shape]
        xs, ys = [x for x, _ in corners], [y for _, y in corners]
        painted += (max(xs) - min(xs) + 1) * (max(ys) - min(ys) + 1)
        if painted > coverage.limits.vector_painted:
            coverage.beyond("vector_painted", place)
            break
        pen.polygon(corners, fill=0)
    return picture
