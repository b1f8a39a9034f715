"""Known-answer self-tests of the readers that workers give hostile bytes to; a new reader adds a row."""

import base64

from mailwarden.analysis.links.hosts import shown_host
from mailwarden.files.container import Opening
from mailwarden.files.unpacking import files_of, unpack
from mailwarden.message.coverage import Coverage
from mailwarden.message.html import read_html
from mailwarden.message.message import Part
from mailwarden.model.place import WHOLE_MESSAGE
from mailwarden.telemetry.self_tests import PLAIN, SelfTest

_ZIP = base64.b64decode(
    "UEsDBBQAAAAIAAAAIVwJhIjBFAAAABgBAAAKAAAAYS9ub3RlLnR4dPPOyy/PU0jMKy5PLdJT8B7lQXkAUEsBAhQDFAAAAAgAAAAhXAmEiMEUAAAA"
    "GAEAAAoAAAAAAAAAAAAAAIABAAAAAGEvbm90ZS50eHRQSwUGAAAAAAEAAQA4AAAAPAAAAAAA"
)
_TAR = base64.b64decode(
    "H4sIAAAAAAACA0vUz8svSdUrqShhoBkwAAIzExMwDQTotIGJMYINETc3MzdgUDBgoAMoLS5JLAJayTAygXdefnmeQmJecXlqkZ7CKA/GYxgFo2AU"
    "jIJhDgClsPKrAAgAAA=="
)
_PAGE = (
    "<!doctype html><title>t</title><table><tr><td><p>Dear <b>Bob<!-- --></b><a href='https://north.example/?a&amp;b'>"
    "bank.example</a><form action=/in><input type=password></form></table><script>x</script>"
)
_PDF = b"".join(
    (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n",
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 50]/Annots[4 0 R]/Contents 5 0 R",
        b"/Resources<</Font<</F 6 0 R>>>>>>endobj\n4 0 obj<</Type/Annot/Subtype/Link/Rect[0 0 200 50]",
        b"/A<</S/URI/URI(https://north.example/)>>>>endobj\n5 0 obj<</Length 40>>stream\n",
        b"BT /F 12 Tf 5 20 Td (Known answer) Tj ET \nendstream endobj\n",
        b"6 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Size 7/Root 1 0 R>>\n%%EOF\n",
    )
)


def _shows_a_host() -> bool:
    return shown_host("bank.example") == "bank.example" and shown_host("Bank.Example/login?x=1") == "bank.example"


def _reads_html() -> bool:
    page = read_html(_PAGE)
    links = [(link.href, link.text) for link in page.links]
    return ("https://north.example/?a&b", "bank.example") in links and bool(page.forms)


def _opens_archives() -> bool:
    for name, content in (("a.zip", _ZIP), ("a.tar.gz", _TAR)):
        coverage = Coverage()
        part = Part("1", "application/octet-stream", name, "attachment", "", content, "")
        files = files_of(unpack((part,), Opening(coverage)))
        if ("a/note.txt", PLAIN) not in [(file.name, file.content) for file in files] or not coverage.complete:
            return False
    return True


def _reads_pdf() -> bool:
    from mailwarden.files.pdf.document import PdfClock, read_pdf  # noqa: PLC0415 - loads pdfium

    coverage = Coverage()
    reading = read_pdf(_PDF, tuple, coverage, WHOLE_MESSAGE, PdfClock(coverage))
    return reading.text.strip() == "Known answer" and reading.links == ("https://north.example/",)


def _matches_yara_rules() -> bool:
    import yara_x  # noqa: PLC0415 - slow to import, and most operators have no rules of their own

    rules = yara_x.compile("rule known { strings: $a = /answ[ef]r{1,2}/ nocase condition: #a == 20 }")
    return [rule.identifier for rule in rules.scan(PLAIN).matching_rules] == ["known"]


# Libraries that every worker uses.
READERS: tuple[SelfTest, ...] = (
    SelfTest("hosts in text", _shows_a_host),
    SelfTest("HTML parser", _reads_html),
    SelfTest("archive readers", _opens_archives),
    SelfTest("PDF reader", _reads_pdf),
)
# Libraries that a worker with YARA rules uses as well.
YARA_ENGINE: tuple[SelfTest, ...] = (SelfTest("YARA engine", _matches_yara_rules),)
