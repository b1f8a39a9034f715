"""Reads the QR codes of a picture, a page of a PDF or a drawing made of text.

Security: decoders of pictures, of PDF and of codes are native code on hostile bytes: only inside a killable worker.
Sides, pixels, frames and pages are bounded before anything is unpacked, and what cannot be read is no code.
"""

import io
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import zxingcpp
from PIL import Image

from mailwarden.analysis.pdf_lines import is_lines_of_text

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

MIN_SIDE = 21  # the smallest code, one pixel a module
MAX_PIXELS = 20_000_000
WORKING_PIXELS = 4_000_000  # what is larger is made smaller first: a code that people can scan stays readable
SMALL_SIDE = 200
PHOTOGRAPH = 0.35  # of the pixels; codes have up to half of it, however badly they were saved
MAX_BYTES = 20 * 1024 * 1024
MAX_CODES = 20
MAX_TEXT = 4_096
MAX_PDF_PAGES = 5  # the first ones, and the last
MAX_FRAMES = 30
PIECES = (2, 3, 4, 9)  # pictures that together may show one code
_SQUARE = (0.8, 1.25)  # the sides of a code, one by the other

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
_CODES = zxingcpp.BarcodeFormats(
    [zxingcpp.BarcodeFormat.QRCode, zxingcpp.BarcodeFormat.MicroQRCode, zxingcpp.BarcodeFormat.DataMatrix]
)


class Budget:
    """The time that may go into looking for codes in one message, in seconds of this process."""

    def __init__(self, seconds: float) -> None:
        self._until = time.process_time() + seconds

    @property
    def spent(self) -> bool:
        return time.process_time() > self._until


def read_picture(content: bytes) -> tuple[str, ...]:
    """Return the texts of the codes in a picture, or nothing where it is none, too small or too large."""
    if len(content) > MAX_BYTES:
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a decompression bomb is warned about; its pixels are checked here
            with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
                width, height = picture.size
                if min(width, height) < MIN_SIDE or width * height > MAX_PIXELS:
                    return ()
                if picture.format == "JPEG" and width * height > 2 * WORKING_PIXELS:
                    picture.draft("L", (width // 2, height // 2))
                found = read_image(_flatten(picture))
                frames = getattr(picture, "n_frames", 1)
                if not found and 1 < frames <= MAX_FRAMES and width * height <= WORKING_PIXELS:
                    picture.seek(frames - 1)  # what stays to be seen when it has played
                    found = read_image(_flatten(picture))
                return found
    except Exception:  # a hostile picture may break its decoder in any way, and then holds no code that people can scan
        return ()


def read_pieces(contents: Sequence[bytes]) -> tuple[str, ...]:
    """Return the texts of a code that was cut into pictures of one size, which a page puts together again."""
    if len(contents) not in PIECES or sum(map(len, contents)) > MAX_BYTES:
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pieces = []
            for content in contents:
                with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
                    if picture.width * picture.height > WORKING_PIXELS:
                        return ()
                    pieces.append(_flatten(picture))
    except Exception:  # as above
        return ()
    number = len(pieces)
    for columns in sorted({1, number, round(number**0.5)}):
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
    if grey.width * grey.height > WORKING_PIXELS:
        factor = (WORKING_PIXELS / (grey.width * grey.height)) ** 0.5
        grey = grey.resize((max(1, int(grey.width * factor)), max(1, int(grey.height * factor))))
    found = _scan(grey)
    small = min(grey.size) <= SMALL_SIDE and max(grey.size) <= 4 * SMALL_SIDE
    if not found and small and not _is_photograph(grey):
        # A code without a quiet zone, or with modules of a pixel or two: both are given room.
        larger = grey.resize((grey.width * 4, grey.height * 4), Image.Resampling.NEAREST)
        framed = Image.new("L", (larger.width + 64, larger.height + 64), 255)
        framed.paste(larger, (32, 32))
        found = _scan(framed)
    return found


def read_drawing(rows: Sequence[Sequence[bool]]) -> tuple[str, ...]:
    """Return the texts of the codes in a drawing of dark and light fields."""
    width = max((len(row) for row in rows), default=0)
    if not MIN_SIDE <= width <= 400 or not MIN_SIDE <= len(rows) <= 400:
        return ()
    fields = bytes(0 if dark else 255 for row in rows for dark in (*row, *(False,) * (width - len(row))))
    try:
        return read_image(Image.frombytes("L", (width, len(rows)), fields))
    except (ValueError, RuntimeError):
        return ()


def read_pdf(content: bytes, budget: Budget) -> Iterator[tuple[int, str]]:
    """Yield the number of the page and the text of each code in the first pages of a PDF."""
    if len(content) > MAX_BYTES:
        return
    import pypdfium2  # noqa: PLC0415 - takes longer to import than most messages take to examine

    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError:
        return
    try:
        pages = len(document)
        for number in sorted({*range(min(pages, MAX_PDF_PAGES)), max(0, pages - 1)}):
            if budget.spent:
                return
            for text in _read_page(document, number):
                yield number + 1, text
    finally:
        document.close()


def _read_page(document: "PdfDocument", number: int) -> tuple[str, ...]:
    try:
        page = document[number]
        width, height = page.get_size()
        if width < 1 or height < 1:
            return ()
        scale = min(2.0, (WORKING_PIXELS / (width * height)) ** 0.5)
        if is_lines_of_text(page):
            return ()
        return read_image(page.render(scale=scale, grayscale=True).to_pil().convert("L"))
    except Exception:  # pdfium tells broken pages in many ways
        return ()


def _is_photograph(grey: Image.Image) -> bool:
    """Tell whether much of a picture is neither dark nor light, as in no code that fills it."""
    counts = grey.histogram()
    used = [shade for shade, count in enumerate(counts) if count]
    third = (used[-1] - used[0]) // 3
    return sum(counts[used[0] + third : used[-1] - third + 1]) > PHOTOGRAPH * grey.width * grey.height


def _flatten(picture: Image.Image) -> Image.Image:
    """Return a grey image on white: what is transparent is seen on the white of the message."""
    if picture.mode in {"RGBA", "LA", "PA"} or "transparency" in picture.info:
        with_alpha = picture.convert("RGBA")
        white = Image.new("RGBA", with_alpha.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, with_alpha).convert("L")
    return picture.convert("L")


def _scan(grey: Image.Image) -> tuple[str, ...]:
    codes = zxingcpp.read_barcodes(grey, formats=_CODES)
    return tuple(code.text[:MAX_TEXT] for code in codes[:MAX_CODES] if code.text)
