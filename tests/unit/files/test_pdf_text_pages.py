"""Pages of PDF that are nothing but lines of text are told from all others, so that no code is missed on them."""

import pypdfium2
import pytest
import segno

from mailwarden.files.images import PictureClock
from mailwarden.files.pdf.document import PdfClock
from mailwarden.files.pdf.scan import scan_pdf
from mailwarden.files.qr_codes import is_lines_of_text, read_pdf
from mailwarden.message.coverage import Coverage
from mailwarden.model.place import WHOLE_MESSAGE

URL = "https://thief.example/verify"
LINES = "".join(
    f"BT /F1 11 Tf 50 {780 - 16 * line} Td (A line of a letter, number {line}) Tj ET\n" for line in range(40)
)
RULE = "50 700 m 400 700 l S\n"
FIELDS = [
    (x, y)
    for y, row in enumerate(segno.make(URL, micro=False).matrix_iter(border=0))
    for x, dark in enumerate(row)
    if dark
]
CODE = "".join(f"{300 + 4 * x} {300 - 4 * y} 4 4 re f\n" for x, y in FIELDS)
PICTURE = "q 100 0 0 100 50 50 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x00 EI Q\n"


def pdf(content: str, notes: str = "") -> bytes:
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
            f" /Resources << /Font << /F1 5 0 R >> >> {notes} >>"
        ),
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body = "".join(f"{number} 0 obj\n{each}\nendobj\n" for number, each in enumerate(objects, 1))
    return f"%PDF-1.7\n{body}trailer << /Root 1 0 R >>\n%%EOF".encode("latin-1")


def is_lines(content: str, notes: str = "") -> bool:
    document = pypdfium2.PdfDocument(pdf(content, notes))
    try:
        return is_lines_of_text(document[0])
    finally:
        document.close()


LINK = "/Annots [<< /Type /Annot /Subtype /Link /Rect [50 700 200 712] >>]"
STAMP = "/Annots [<< /Type /Annot /Subtype /Stamp /Rect [50 700 200 812] >>]"


@pytest.mark.parametrize(("content", "notes"), [(LINES, ""), (LINES + RULE, ""), (LINES, LINK), ("", "")])
def test_a_letter_is_lines_of_text(content, notes):
    assert is_lines(content, notes)


@pytest.mark.parametrize(
    ("content", "notes"),
    [
        (LINES + CODE, ""),
        (LINES + PICTURE, ""),
        (LINES, STAMP),
        ("BT /F1 60 Tf 50 700 Td (HIGH) Tj ET", ""),
        (LINES + "50 100 m 50 700 l S", ""),
        ("".join(f"BT /F1 11 Tf 1 0 0 1 50 {780 - 6 * line} Tm (gHjgHj) Tj ET\n" for line in range(40)), ""),
    ],
    ids=[
        "a code",
        "a picture",
        "a stamp",
        "letters as high as a code",
        "a line from top to bottom",
        "lines that touch",
    ],
)
def test_a_page_that_may_show_a_code_is_rendered(content, notes):
    assert not is_lines(content, notes)


def test_a_code_among_lines_is_read():
    assert list(read_pdf(pdf(LINES + CODE), PictureClock(Coverage()))) == [(1, URL)]


def test_a_pdf_is_opened_once_for_its_links_and_its_codes(monkeypatch):
    opened = []
    original = pypdfium2.PdfDocument.__init__

    def count_and_open(self, *rest):
        opened.append(1)
        original(self, *rest)

    monkeypatch.setattr(pypdfium2.PdfDocument, "__init__", count_and_open)
    content, coverage = pdf(LINES + CODE), Coverage()
    reading = scan_pdf(content, coverage=coverage).reading
    look = (content, PictureClock(coverage), "", WHOLE_MESSAGE, reading.opened)
    assert list(read_pdf(*look)) == [(1, URL)]
    assert len(opened) == 1
    assert list(read_pdf(*look)) == [(1, URL)]  # a copy of the file in another part
    assert len(opened) == 2


def test_only_a_few_small_pdfs_stay_open():
    coverage = Coverage()
    clock = PdfClock(coverage)
    small = [scan_pdf(pdf(LINES + "%" * number), coverage=coverage, clock=clock) for number in range(6)]
    assert [scan.reading.opened is not None for scan in small] == [True] * 4 + [False] * 2
    large = scan_pdf(pdf("%" + "x" * 2_000_000 + "\n" + LINES), coverage=coverage)
    assert large.reading.loaded
    assert large.reading.opened is None
