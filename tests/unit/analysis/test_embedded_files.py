"""Files inside of documents are returned, so that every analyzer and every list sees them."""

import zlib

import pytest

from mailwarden.analysis.embedded_files import embedded_files, holds_files
from mailwarden.analysis.onenote_files import ONENOTE
from mailwarden.analysis.view import View
from mailwarden.message.coverage import Coverage
from mailwarden.message.message import Message, Part
from tests.unit.analysis.compound_maker import compound
from tests.unit.analysis.pdf_maker import encrypted, link, pdf, stream
from tests.unit.analysis.test_office_documents import zipped

SCRIPT = b"WScript.Echo(1)"


def package() -> bytes:
    name = b"a.js\0"
    body = b"\x02\0" + name + name + b"\0\0\3\0" + len(name).to_bytes(4, "little") + name
    body += len(SCRIPT).to_bytes(4, "little") + SCRIPT
    return len(body).to_bytes(4, "little") + body


HELD = stream(zlib.compress(SCRIPT), b"/Type/EmbeddedFile/Filter/FlateDecode")
SPEC = b"<</Type/Filespec/F(a.js)/UF(a.js)/EF<</F 6 0 R>>>>"
STORED = bytes.fromhex("e716e3bd65261145a4c48d4d0b7a9eac") + len(SCRIPT).to_bytes(8, "little") + bytes(12) + SCRIPT


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (pdf(link(), SPEC, HELD, catalog=b"/Names<</EmbeddedFiles<</Names[(a.js)5 0 R]>>>>"), "a.js"),
        (pdf(b"<</Type/Annot/Subtype/FileAttachment/Rect[0 0 9 9]/FS 5 0 R>>", SPEC, HELD), "a.js"),
        (compound({"\x01Ole10Native": package()}), "a.js"),
        (b"{\\rtf1{\\object\\objdata " + (b"Package\0" + package()).hex().encode() + b"}}", "a.js"),
        (ONENOTE + bytes(100) + STORED, ""),
    ],
    ids=["pdf", "annotation", "ole", "rtf", "onenote"],
)
def test_the_file_is_returned_with_its_name(content, name):
    assert holds_files(content)
    assert (name, SCRIPT) in list(embedded_files(content, tuple, Coverage()))


def test_a_plain_pdf_and_a_locked_one_have_no_files():
    assert not holds_files(pdf(link(b"(https://a.example/)")))
    assert list(embedded_files(encrypted(password="secret"), tuple, Coverage())) == []


def test_a_file_inside_of_a_document_is_opened_like_any_other():
    held = stream(zlib.compress(zipped({"inner.js": SCRIPT})), b"/Type/EmbeddedFile/Filter/FlateDecode")
    spec = SPEC.replace(b"a.js", b"a.zip")
    content = pdf(link(), spec, held, catalog=b"/Names<</EmbeddedFiles<</Names[(a.zip)5 0 R]>>>>")
    part = Part("1", "application/pdf", "a.pdf", "attachment", "", content, "")
    names = [file.name for file in View(Message(0, "", (), (part,))).opened_files]
    assert names == ["a.pdf", "a.zip", "inner.js"]
