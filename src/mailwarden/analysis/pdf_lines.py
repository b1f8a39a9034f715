"""Tells a page of a PDF that is nothing but lines of text, and so shows no code, at a fifth of what looking costs.

Both what the page is made of and how it looks must say so: a picture could be cut into strips as high as lines,
and letters of a font could be the fields of a code, but then their lines touch.

Security: PDFium is native code on hostile bytes: only inside a killable worker. Objects and pixels are bounded.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

# A page beyond one of these is rendered and searched like any other.
FEW_OBJECTS = 3_000
FEW_RULES = 100  # lines and frames that are drawn
FEW_SEGMENTS = 10  # of one of them
LINE = 20  # points from the top of a line to its bottom; a code that people can scan is higher
SIDE = 1_500  # points of a page that is looked at this way
MANY_LETTERS = 20  # different ones on a page of words; a code in letters has few


def is_lines_of_text(page: "PdfPage") -> bool:
    width, height = page.get_size()
    return max(width, height) <= SIDE and _is_made_of_text(page) and _shows_only_lines(page)


def is_made_of_words(page: "PdfPage") -> bool:
    """Tell a page of nothing but words, without rendering it: many pages of a book are read so."""
    if not _is_made_of_text(page):
        return False
    text_page = page.get_textpage()
    try:
        letters = text_page.get_text_range(0, max(text_page.count_chars(), 0)) if text_page.count_chars() > 0 else ""
    finally:
        text_page.close()
    return not letters or len(set(letters)) >= MANY_LETTERS


def _is_made_of_text(page: "PdfPage") -> bool:
    """Tell whether there is nothing but text, a few straight lines, and links, which are not seen."""
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
    """Tell whether rows of one colour stand between all that is shown, as between lines."""
    picture = page.render(scale=1, grayscale=True)
    pixels, width, stride = bytes(picture.buffer), picture.width, picture.stride
    high = 0
    for start in range(0, picture.height * stride, stride):
        row = pixels[start : start + width]
        high = 0 if row == row[:1] * width else high + 1
        if high > LINE:
            return False
    return True
