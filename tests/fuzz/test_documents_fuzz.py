"""Mutated PDF files, Office documents and pictures raise nothing in their readers, and take bounded time."""

import io
import os
import random
import time
import zipfile
from collections.abc import Callable

import pytest
import segno
from PIL import Image

from mailwarden.files.file_types import kind_by_content
from mailwarden.files.images import PictureClock, picture_kind
from mailwarden.files.metafiles import read_metafile
from mailwarden.files.office.documents import read_document
from mailwarden.files.office.onenote import ONENOTE, onenote_files, onenote_names
from mailwarden.files.pdf.scan import scan_pdf
from mailwarden.files.qr_codes import read_pdf, read_picture
from mailwarden.files.text_drawings import find_page_drawings, find_text_drawings
from mailwarden.files.vector_drawings import read_vectors
from mailwarden.message.coverage import Coverage
from mailwarden.model.place import WHOLE_MESSAGE
from tests.fuzz.mutations import mutate
from tests.unit.files.compound_maker import compound, macro_file
from tests.unit.files.pdf_maker import encrypted, link, pdf, stream, with_object_stream

ROUNDS = 20_000 if os.environ.get("MAILWARDEN_FULL") else 400
SECONDS = 10  # for one input, on a busy machine
SPLINTERS = (
    b"obj", b"endobj", b"stream\n", b"endstream", b"<<", b">>", b"(", b")", b"<", b">", b"/JS ", b"/URI ", b"/Next ",
    b"4 0 R", b"/Filter/FlateDecode", b"/LZWDecode", b"/Predictor 12", b"%", b"#53", b"PK\x01\x02", b"PK\x05\x06",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rtf1", b"\\objdata ", b"\\fldinst ", b"IDAT", b"fcTL", b"\xff\xda",
    b"\0" * 9,    b"\xff" * 9, b"Relationship ", b"<rect width='9' height='9'/>", "█▀▄".encode(),
)  # fmt: skip


def _pdf(content: bytes) -> None:
    scan_pdf(content, lambda: ("secret",))
    list(read_pdf(content, PictureClock(Coverage())))


def _office(content: bytes) -> None:
    read_document(content, kind_by_content(content[:4_096]))
    list(onenote_files(content))
    list(onenote_names(content, Coverage(), WHOLE_MESSAGE))


def _picture(content: bytes) -> None:
    coverage = Coverage()
    read_picture(content, picture_kind(content), PictureClock(coverage))
    list(read_metafile(content, coverage, WHOLE_MESSAGE))
    text = content.decode("utf-8", "replace")
    list(read_vectors(text, coverage))
    list(find_page_drawings(text, coverage))
    list(find_text_drawings(text, coverage))


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def pictures() -> list[bytes]:
    code = segno.make("https://a.example/", micro=False)
    out = io.BytesIO()
    code.save(out, kind="png", scale=3)
    image = Image.open(out).convert("L")
    blank = Image.new("L", image.size, 200)
    found = [out.getvalue()]
    for kind in ("JPEG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "JPEG2000", "ICO"):
        buffer = io.BytesIO()
        moving = {"save_all": True, "append_images": [image]} if kind in {"GIF", "WEBP", "TIFF"} else {}
        (blank if moving else image).save(buffer, kind, **moving)
        found.append(buffer.getvalue())
    vector = io.BytesIO()
    code.save(vector, kind="svg")
    return [*found, vector.getvalue(), b"\1\0\0\0" + b"\x6c\0\0\0" + bytes(32) + b" EMF" + bytes(64)]


ACTION = b"/OpenAction<</S/JavaScript/JS 5 0 R>>"
PDFS = [
    pdf(link()),
    pdf(link(b"5 0 R"), b"(https://a.example/)"),
    pdf(link(), stream(b"6170702e616c6572742831293e", b"/Filter/ASCIIHexDecode"), catalog=ACTION),
    with_object_stream(b"", link()),
    encrypted(script="app.alert(1)"),
    encrypted(password="secret"),
]
RELATIONS = b'<Relationships><Relationship Type="x/hyperlink" Target="https://a.example/" TargetMode="External"/>'
OFFICE = [
    zipped({"[Content_Types].xml": b"<Types/>", "a.rels": RELATIONS, "vbaProject.bin": macro_file("Sub AutoOpen()")}),
    zipped({"mimetype": b"application/vnd.oasis.opendocument.text", "content.xml": b"<a xlink:href='https://a/'/>"}),
    macro_file("Sub AutoOpen()\r\nShell 1\r\nEnd Sub"),
    compound(
        {"Workbook": b"\x09\x08\x10\0" + bytes(40), "\x01Ole10Native": b"\x20\0\0\0\x02\0a.js\0b.js\0" + bytes(40)}
    ),
    b'{\\rtf1{\\object\\objdata 0105000002000000}{\\field{\\*\\fldinst{HYPERLINK "https://a.example/"}}}}',
    b"<?xml version='1.0'?><?mso-application progid='Word.Document'?><w:binData>AAAA</w:binData>",
    ONENOTE + bytes.fromhex("e716e3bd65261145a4c48d4d0b7a9eac") + bytes(40) + "a.hta".encode("utf-16-le"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "samples"), [(_pdf, PDFS), (_office, OFFICE), (_picture, pictures())], ids=["pdf", "office", "pictures"]
)
def test_mutated_documents_raise_nothing(read: Callable[[bytes], None], samples: list[bytes]):
    seed = random.randrange(1 << 32) if os.environ.get("MAILWARDEN_FULL") else 20_261_116
    dice = random.Random(seed)
    for _ in range(ROUNDS):
        content = mutate(dice.choice(samples), dice, SPLINTERS)
        began = time.process_time()
        read(content)
        assert time.process_time() - began < SECONDS, (seed, content[:200])
