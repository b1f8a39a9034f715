"""QR codes are read from pictures, drawings and pages of PDF; what is no picture, or too much of one, holds none."""

import io

import pytest
import segno
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mailwarden.analysis.qr_codes import Budget, read_drawing, read_pdf, read_picture
from mailwarden.analysis.qr_drawings import find_page_drawings, find_text_drawings

URL = "https://thief.example/verify?x=1"
CODE = segno.make(URL, micro=False)
FIELDS = [[bool(field) for field in row] for row in CODE.matrix_iter(border=2)]


def picture(kind: str = "png", **options) -> bytes:
    buffer = io.BytesIO()
    CODE.save(buffer, kind=kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 1, "border": 0},
        {"scale": 2},
        {"scale": 10},
        {"scale": 4, "dark": "white", "light": "black"},
        {"scale": 4, "light": None},
    ],
    ids=["one pixel a module", "small", "large", "inverted", "transparent"],
)
def test_a_code_is_read_at_any_size_and_in_any_colours(options):
    assert read_picture(picture(**options)) == (URL,)


def test_a_code_in_a_photograph_is_read():
    photograph = Image.new("RGB", (2_400, 3_000), (200, 210, 220))
    photograph.paste(Image.open(io.BytesIO(picture(scale=12))).convert("RGB"), (700, 900))
    buffer = io.BytesIO()
    photograph.save(buffer, "JPEG", quality=60)
    assert read_picture(buffer.getvalue()) == (URL,)


def test_a_page_of_pdf_is_read():
    assert list(read_pdf(picture("pdf", scale=4), Budget(5))) == [(1, URL)]


def test_a_spent_budget_reads_no_page():
    assert list(read_pdf(picture("pdf", scale=4), Budget(-1))) == []


def test_drawings_of_blocks_and_cells_are_read():
    wide = "\n".join("".join("██" if dark else "  " for dark in row) for row in FIELDS)
    rows = "".join("<tr>" + "".join(f"<td bgcolor={'black' if dark else 'white'}>" for dark in row) for row in FIELDS)
    assert [read_drawing(each) for each in find_text_drawings(wide)] == [(URL,)]
    assert [read_drawing(each) for each in find_page_drawings(f"<table>{rows}</table>")] == [(URL,)]


def test_a_picture_of_too_many_pixels_is_not_unpacked():
    buffer = io.BytesIO()
    Image.new("1", (30_000, 30_000)).save(buffer, "PNG")
    assert read_picture(buffer.getvalue()) == ()


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reading(content):
    for head in (b"", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"GIF89a", b"\xff\xd8\xff\xe0", b"BM", b"II*\0"):
        read_picture(head + content)
    list(read_pdf(b"%PDF-1.7\n" + content, Budget(1)))
