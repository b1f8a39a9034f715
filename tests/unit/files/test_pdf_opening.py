"""What a PDF does at opening is read inline, by reference and from packed objects; scripts that only print are told."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.files.pdf import scan
from mailwarden.files.pdf.objects import PdfObjects
from mailwarden.files.pdf.scan import scan_pdf


def opening_actions(content, packed):
    return scan.opening_actions(PdfObjects((content,), packed), (content, *packed))


@pytest.mark.parametrize(
    ("content", "kinds"),
    [
        (b"/OpenAction << /S /JavaScript /JS (app.alert\\('x'\\);) >>", {"JavaScript"}),
        (b"/OpenAction << /S /JavaScript /JS (this.print\\(true\\);) >>", {"PrintScript"}),
        (b"/OpenAction<</S/JavaScript/JS(var pp = this.getPrintParams(); this.print(pp);)>>", {"PrintScript"}),
        (b"/OpenAction << /JS (this.getField('a').value = new Date();) /S/JavaScript >>", {"PrintScript"}),
        (b"/OpenAction << /S /JavaScript /JS <6576616c282231222922> >>", {"JavaScript"}),
        (b"/OpenAction 7 0 R 7 0 obj << /S /URI /URI (https://a.example/) >> endobj", {"URI"}),
        (b"/OpenAction 7 0 R 7 0 obj <</S/JavaScript/JS 8 0 R>> endobj 8 0 obj <<>>stream\neval(x)", {"JavaScript"}),
        (b"/AA << /O << /S /SubmitForm /F (https://a.example/) >> >>", {"SubmitForm"}),
        (b"/OpenAction << /S /GoTo /D [1 0 R /Fit] >> /Names << /S /JavaScript /JS (x) >>", {"GoTo"}),
        (b"/OpenAction [3 0 R /FitH null] /A << /S /URI /URI (https://a.example/) >>", set()),
        (b"/AA << /K << /S /JavaScript /JS (AFNumber_Keystroke\\(2\\)) >> >>", set()),
        (b"/OpenAction 9 0 R", set()),
    ],
)  # fmt: skip
def test_open_actions_are_reported(content, kinds):
    assert opening_actions(b"%PDF-1.7 " + content, ()) == kinds


def test_an_action_in_packed_objects_is_found():
    packed = zlib.compress(
        b"5 0 7 40 " + b"<< /Type /Catalog /OpenAction 7 0 R >>".ljust(40) + b"<< /S /URI /URI (x) >>"
    )
    content = b"%PDF-1.7 << /Type /ObjStm /Filter /FlateDecode >>\nstream\n" + packed + b"\nendstream"
    assert scan_pdf(content).opening == {"URI"}


def test_a_packed_script_is_unpacked():
    stream = b"8 0 obj << /Filter /FlateDecode >> stream\n" + zlib.compress(b"this.print(true)") + b"\nendstream endobj"
    assert opening_actions(b"/OpenAction << /S /JavaScript /JS 8 0 R >> " + stream, ()) == {"PrintScript"}


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(content):
    for head in (b"/OpenAction << ", b"/OpenAction 1 0 R 1 0 obj ", b"/OpenAction << /S /JavaScript /JS (", b"/JS <"):
        opening_actions(head + content, (b"1 0 2 5 " + content,))
