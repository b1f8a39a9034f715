"""A PDF is read by its source and through pdfium: encodings, encryption and damage hide no link and no script."""

import zlib

import pytest
from msgspec.structs import replace

from mailwarden.files.pdf.document import PdfClock, read_pdf
from mailwarden.files.pdf.scan import scan_pdf
from mailwarden.message.coverage import Coverage, MissedReason
from mailwarden.message.limits import LIMITS
from mailwarden.model.place import Place
from tests.unit.files.pdf_maker import LINK, encrypted, link, numbered, pdf, stream, with_object_stream

ACTING = "app.launchURL('https://thief.example/x', true);"


def octal(text: str) -> bytes:
    return b"(" + b"".join(b"\\%03o" % ord(each) for each in text) + b")"


@pytest.mark.parametrize(
    "content",
    [
        pdf(link()),
        pdf(link(octal(LINK))),
        pdf(link(b"<" + LINK.encode().hex(" ").encode() + b">")),
        pdf(link(b"% a comment (with this)\n(" + LINK.encode() + b")")),
        pdf(link(b"5 0 R"), b"(" + LINK.encode() + b")"),
        pdf(link(b"(https://login-portal.thief.example/ver\\\nify)")),
        pdf(b"<</Type/Annot/Subtype/Link/Rect[0 0 9 9]/A 5 0 R>>", b"<</S/U#52I/UR#49(" + LINK.encode() + b")>>"),
        with_object_stream(b"", link()),
        with_object_stream(b"", link(), b"/ASCIIHexDecode/FlateDecode"),
        with_object_stream(b"", link(), name=b"/Obj#53tm"),
        encrypted(),
        pdf(link())[:-60],  # readers build a lost cross-reference table again
        b"some bytes before\n" + pdf(link()),
    ],
    ids=[
        "plain",
        "octal",
        "hex",
        "comment",
        "indirect",
        "line",
        "names",
        "packed",
        "filters",
        "type",
        "encrypted",
        "cut",
        "front",
    ],
)
def test_a_link_is_found_in_every_encoding(content):
    assert LINK in scan_pdf(content).links


def test_balanced_parentheses_belong_to_the_link():
    assert "https://a.example/x(1(2))y" in scan_pdf(pdf(link(b"(https://a.example/x(1(2))y)"))).links


def lzw(data: bytes) -> bytes:
    """Encode every byte by itself; the table is cleared before codes need a tenth bit."""
    bits = "".join(
        format(256, "09b") + "".join(format(byte, "09b") for byte in data[start : start + 200])
        for start in range(0, len(data), 200)
    ) + format(257, "09b")
    return bytes(int(bits[place : place + 8].ljust(8, "0"), 2) for place in range(0, len(bits), 8))


def ascii85(data: bytes) -> bytes:
    import base64

    return base64.a85encode(data) + b"~>"


SCRIPT = ACTING.encode()


@pytest.mark.parametrize(
    ("filters", "data"),
    [
        (b"/FlateDecode", zlib.compress(SCRIPT)),
        (b"/Fl", zlib.compress(SCRIPT)),
        (b"[/ASCIIHexDecode/FlateDecode]", zlib.compress(SCRIPT).hex().encode() + b">"),
        (b"[/ASCII85Decode]", ascii85(SCRIPT)),
        (b"[/A85/Fl]", ascii85(zlib.compress(SCRIPT))),
        (b"/LZWDecode", lzw(SCRIPT)),
        (b"/RunLengthDecode", bytes([len(SCRIPT) - 1]) + SCRIPT + b"\x80"),
        (b"/FlateDecode/DecodeParms<</Predictor 12/Columns 5>>",
         zlib.compress(b"".join(b"\0" + SCRIPT.ljust(50)[at : at + 5] for at in range(0, 50, 5)))),
    ],
)  # fmt: skip
def test_a_script_is_read_through_every_filter(filters, data):
    action = b"/OpenAction<</S/JavaScript/JS 5 0 R>>/Names<</JavaScript<</Names[(a)<</S/JavaScript/JS 5 0 R>>]>>>>"
    scan = scan_pdf(pdf(link(), stream(data, b"/Filter " + filters), catalog=action))
    assert scan.opening == {"JavaScript"}
    assert scan.scripts.acts


def test_an_encrypted_script_is_read():
    scan = scan_pdf(encrypted(script=ACTING))
    assert "exports" in scan.actions
    assert scan.opening == {"JavaScript"}


def test_the_password_of_the_message_opens_a_document():
    content = encrypted(password="Tulip-77")
    coverage = Coverage()
    assert LINK in scan_pdf(content, lambda: ("wrong", "Tulip-77"), coverage, Place(part="1", name="a.pdf")).links
    assert coverage.complete
    assert scan_pdf(content, lambda: ("wrong",), coverage, Place(part="1", name="a.pdf")).reading.locked
    assert [missed.reason for missed in coverage.missed] == [MissedReason.ENCRYPTED]


def test_a_damaged_document_is_recorded_as_missed():
    coverage = Coverage()
    scan_pdf(b"%PDF-1.7\n" + b"1 0 obj << /Type /Catalog >> endobj" * 5, tuple, coverage, Place(part="1", name="a.pdf"))
    assert [missed.reason for missed in coverage.missed] == [MissedReason.DAMAGED]


def test_an_address_in_the_text_is_a_link():
    text = b"BT /F1 12 Tf 20 200 Td (See www.thief.example/pay or https://thief.example/b) Tj ET"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 300]/Resources<</Font<</F1 5 0 R>>>>/Contents 4 0 R>>"
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
    tree = (b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>")
    links = scan_pdf(numbered((*tree, page, stream(text), font))).links
    assert "https://thief.example/b" in links
    assert any("www.thief.example/pay" in each for each in links)


def test_the_address_that_a_form_is_sent_to_is_a_link():
    action = b"<</S/SubmitForm/F<</FS/URL/F(" + LINK.encode() + b")>>>>"
    assert LINK in scan_pdf(pdf(b"<</Type/Annot/Subtype/Link/Rect[0 0 9 9]/A" + action + b">>")).links


def test_links_of_bookmarks_are_found():
    outlines = b"<</First 6 0 R/Last 6 0 R/Count 1>>"
    bookmark = b"<</Title(a)/Parent 5 0 R/A<</S/URI/URI(" + LINK.encode() + b")>>>>"
    assert LINK in scan_pdf(pdf(link(b"(x)"), outlines, bookmark, catalog=b"/Outlines 5 0 R")).links


def test_pages_beyond_the_limit_are_recorded():
    coverage = Coverage(replace(LIMITS, pdf_pages=0))
    read_pdf(pdf(link()), tuple, coverage, Place(part="1", name="a.pdf"), PdfClock(coverage))
    assert [missed.limit for missed in coverage.missed] == ["pdf_pages"]
