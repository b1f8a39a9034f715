"""What a PDF does is read from its bytes, packed and disguised, and nothing raises."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from mailwarden.analysis.files.pdf.scan import scan_pdf


def test_links_are_read_as_text_and_as_digits():
    scan = scan_pdf(b"%PDF-1.7 /URI (https://a.example/x\\(1\\)) /URI <68747470733a2f2f622e6578616d706c652f>")
    assert scan.links == ("https://a.example/x(1)", "https://b.example/")


def test_actions_inside_packed_objects_are_found():
    packed = zlib.compress(b"1 0 << /S /Launch /F (a.exe) >>")
    scan = scan_pdf(b"%PDF-1.7 << /Type /ObjStm /Filter /FlateDecode >>\nstream\n" + packed + b"\nendstream")
    assert scan.actions == {"launch"}
    assert scan.files == ("a.exe",)


def test_an_obfuscated_name_is_decoded_and_reported():
    assert scan_pdf(b"%PDF-1.7 /J#61vaScript").disguised == ("/JavaScript",)


def test_short_words_in_packed_pictures_are_no_actions():
    assert scan_pdf(b"%PDF-1.7 stream\n\x01/JS\x02/AA\x03/3D\x04 endstream").actions == set()


@given(st.binary(max_size=400))
def test_no_bytes_break_the_scan(content):
    for head in (b"%PDF-1.7 ", b"%PDF-1.7 /URI <", b"%PDF-1.7 /F (", b"%PDF-1.7 /ObjStm >> stream\n"):
        scan_pdf(head + content)
