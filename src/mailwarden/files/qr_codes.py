"""Finds QR codes in images, PDF pages and drawings of dark and light fields.

Security: decoders of images, PDF and codes are native code on hostile bytes: only inside a killable worker. Pixels,
tiles, pages, shapes and time are bounded by the message's limits, every pattern is linear, and skipped content is
recorded as missed.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import zxingcpp
from PIL import Image, ImageOps

from mailwarden.files.images import MIN_SIDE, WORKING_PIXELS, PictureClock, read_frames, shrink
from mailwarden.files.pdf.document import OpenPdf, open_pdf
from mailwarden.model.place import WHOLE_MESSAGE, Place

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

# A page beyond one of these is rendered and searched like any other.
FEW_OBJECTS = 3_000
FEW_RULES = 100  # lines and frames that are drawn
FEW_SEGMENTS = 10  # of one of them
TEXT_LINE = 20  # points from the top of a line to its bottom; a code that people can scan is higher
TEXT_PAGE_SIDE = 1_500  # points of a page that is looked at this way
MANY_LETTERS = 20  # different ones on a page of words; a code in letters has few

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
