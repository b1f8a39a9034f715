"""The attachments that the demo makes are what they say: programs and the product's readers open them."""

import io
import zipfile

import pypdfium2
import pytest
import zxingcpp
from PIL import Image

from mailwarden.demo.attachments import content_of
from mailwarden.demo.stories import Attachment, Made
from mailwarden.engines.samples import EICAR

TEXT = "Rechnung 4711 (Müller)\nBetrag,19.00"


def made(kind: Made, name: str = "file", text: str = TEXT) -> bytes:
    return content_of(Attachment(name, kind, text))[1]


def test_a_pdf_has_the_text() -> None:
    page = pypdfium2.PdfDocument(made("pdf"))[0].get_textpage()
    assert page.get_text_range().split("\r\n") == ["Rechnung 4711 [Müller]", "Betrag,19.00"]


@pytest.mark.parametrize(
    ("kind", "member", "has_macro"),
    [
        ("docx", "word/document.xml", False),
        ("docx-macro", "word/document.xml", True),
        ("xlsx", "xl/worksheets/sheet1.xml", False),
    ],
)
def test_an_office_document_has_the_text(kind: Made, member: str, *, has_macro: bool) -> None:
    with zipfile.ZipFile(io.BytesIO(made(kind))) as archive:
        assert "Rechnung 4711" in archive.read(member).decode()
        assert ("word/vbaProject.bin" in archive.namelist()) is has_macro
        assert (b"vbaProject" in archive.read("[Content_Types].xml")) is has_macro, "an analyzer reads what is declared"


def test_a_code_leads_to_the_link() -> None:
    picture = Image.open(io.BytesIO(made("qr", text="https://tools.example/pay")))
    assert [code.text for code in zxingcpp.read_barcodes(picture)] == ["https://tools.example/pay"]


def test_a_picture_is_as_large_as_its_text() -> None:
    assert Image.open(io.BytesIO(made("png"))).size > Image.open(io.BytesIO(made("png", text="-"))).size


def test_malware_is_the_test_file_alone() -> None:
    assert made("eicar") == EICAR
    with zipfile.ZipFile(io.BytesIO(made("eicar", "Label.zip"))) as archive:
        assert archive.namelist() == ["Label.exe"]
        assert archive.read("Label.exe") == EICAR


def test_an_archive_has_its_file() -> None:
    with zipfile.ZipFile(io.BytesIO(made("zip", "Plan.zip", "plan.js: alert(1)"))) as archive:
        assert archive.read("plan.js") == b"alert(1)"
