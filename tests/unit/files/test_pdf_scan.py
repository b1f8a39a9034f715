"""What a PDF does is read from its bytes, packed and disguised, and nothing raises."""

from hypothesis import given
from hypothesis import strategies as st

from mailwarden.files.pdf.scan import scan_pdf


def test_an_obfuscated_name_is_decoded_and_reported():
    assert scan_pdf(b"%PDF-1.7 /J#61vaScript").disguised == ("/JavaScript",)


def test_short_words_in_packed_pictures_are_no_actions():
    assert scan_pdf(b"%PDF-1.7 stream\n\x01/JS\x02/AA\x03/3D\x04 endstream").actions == set()


@given(st.binary(max_size=400))
def test_no_bytes_break_the_scan(content):
    for head in (b"%PDF-1.7 ", b"%PDF-1.7 /URI <", b"%PDF-1.7 /F (", b"%PDF-1.7 /ObjStm >> stream\n"):
        scan_pdf(head + content)
