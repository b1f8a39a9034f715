"""Files inside of documents are returned, so that every analyzer and every list sees them."""

import io
import zlib
from random import Random

import pytest
from msoffcrypto.format.ooxml import OOXMLFile

from mailwarden.analysis.analyzers.office import OfficeAnalyzer
from mailwarden.analysis.view import View
from mailwarden.files.container import Entry, Opening, SeenFile
from mailwarden.files.office.compound import decrypt
from mailwarden.files.office.onenote import ONENOTE
from mailwarden.files.unpacking import embedded_files, holds_files
from mailwarden.message.coverage import Coverage, MissedReason
from mailwarden.message.message import Message, Part
from tests.unit.files.compound_maker import compound, macro_file
from tests.unit.files.pdf_maker import encrypted, link, pdf, stream
from tests.unit.files.test_office_documents import zipped

SCRIPT = b"WScript.Echo(1)"
TYPES = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'


def package() -> bytes:
    name = b"a.js\0"
    body = b"\x02\0" + name + name + b"\0\0\3\0" + len(name).to_bytes(4, "little") + name
    body += len(SCRIPT).to_bytes(4, "little") + SCRIPT
    return len(body).to_bytes(4, "little") + body


def inside(content: bytes) -> list[Entry]:
    part = Part("1", "application/octet-stream", "", "attachment", "", content, "")
    return list(embedded_files(SeenFile(part, "", content), Opening(Coverage())))


HELD = stream(zlib.compress(SCRIPT), b"/Type/EmbeddedFile/Filter/FlateDecode")
SPEC = b"<</Type/Filespec/F(a.js)/UF(a.js)/EF<</F 6 0 R>>>>"
ESCAPED = b"/Names<</#45#6d#62#65#64#64#65#64#46#69#6c#65#73<</Names[(a.js)5 0 R]>>>>"
STORED = bytes.fromhex("e716e3bd65261145a4c48d4d0b7a9eac") + len(SCRIPT).to_bytes(8, "little") + bytes(12) + SCRIPT


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (pdf(link(), SPEC, HELD, catalog=b"/Names<</EmbeddedFiles<</Names[(a.js)5 0 R]>>>>"), "a.js"),
        (pdf(b"<</Type/Annot/Subtype/FileAttachment/Rect[0 0 9 9]/FS 5 0 R>>", SPEC, HELD), "a.js"),
        (pdf(link(), SPEC, HELD.replace(b"Emb", b"#45#6db"), catalog=ESCAPED), "a.js"),
        (compound({"\x01Ole10Native": package()}), "a.js"),
        (b"{\\rtf1{\\object\\objdata " + (b"Package\0" + package()).hex().encode() + b"}}", "a.js"),
        (ONENOTE + bytes(100) + STORED, ""),
    ],
    ids=["pdf", "annotation", "escaped", "ole", "rtf", "onenote"],
)
def test_the_file_is_returned_with_its_name(content, name):
    assert holds_files(content)
    assert (name, SCRIPT) in [(entry.name, entry.content) for entry in inside(content)]


def test_a_plain_pdf_and_a_locked_one_have_no_files():
    assert not holds_files(pdf(link(b"(https://a.example/)")))
    assert not holds_files(pdf(link(b"(https://a.example/#2b)"), stream(b"#41 by chance /#4ame ###")))
    assert holds_files(pdf(link(), stream(b"#41" * 2_000)))
    assert inside(encrypted(password="secret")) == []


def test_a_file_inside_of_a_document_is_opened_like_any_other():
    held = stream(zlib.compress(zipped({"inner.js": SCRIPT})), b"/Type/EmbeddedFile/Filter/FlateDecode")
    spec = SPEC.replace(b"a.js", b"a.zip")
    content = pdf(link(), spec, held, catalog=b"/Names<</EmbeddedFiles<</Names[(a.zip)5 0 R]>>>>")
    part = Part("1", "application/pdf", "a.pdf", "attachment", "", content, "")
    names = [file.name for file in View(Message(0, "", (), (part,))).opened_files]
    assert names == ["a.pdf", "a.zip", "inner.js"]


def test_an_encrypted_document_is_decrypted_once_and_its_plain_form_judged(monkeypatch):
    macros = macro_file("Sub AutoOpen()\nEnd Sub")
    picture = Random(1).randbytes(20_000)  # the library writes short documents wrongly
    plain = zipped({"[Content_Types].xml": TYPES, "xl/vbaProject.bin": macros, "xl/media/a.dat": picture})
    sealed = io.BytesIO()
    OOXMLFile(io.BytesIO(plain)).encrypt("VelvetSweatshop", sealed)
    opened = []

    def decrypt_and_count(content, password):
        opened.append(password)
        return decrypt(content, password)

    monkeypatch.setattr("mailwarden.files.unpacking.decrypt", decrypt_and_count)
    part = Part("1", "application/octet-stream", "a.xlsm", "attachment", "", sealed.getvalue(), "")
    view = View(Message(0, "", (), (part,)))
    names = {finding.name for finding in OfficeAnalyzer().examine(view)}
    assert {"office.default-password", "office.macro"} <= names
    assert opened == ["VelvetSweatshop"]
    assert [file.was_hidden for file in view.opened_files if file.content == plain] == [True]
    assert not [each for each in view.coverage.missed if each.reason is MissedReason.ENCRYPTED]
