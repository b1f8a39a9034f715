"""The PDF file: its text can be read, hostile text is harmless, and other scripts are shown or said to be missing."""

import hashlib
import re
from datetime import UTC, datetime
from uuid import UUID

import pypdfium2
from ruamel.yaml import YAML

from mailwarden.history.store import Attacked, CampaignFigure
from mailwarden.weekly_report.document import BOX, FONT_FILE, write_pdf
from mailwarden.weekly_report.model import WeeklyReport
from tests.unit.weekly_report.sample_reports import HOSTILE, sample_report

NOW = datetime(2026, 11, 16, 6, tzinfo=UTC)


def text_in(content: bytes) -> str:
    document = pypdfium2.PdfDocument(content)
    try:
        return " ".join(" ".join(page.get_textpage().get_text_bounded().split()) for page in document)
    finally:
        document.close()


def with_subjects(*subjects: str) -> WeeklyReport:
    campaigns = tuple(CampaignFigure(UUID(int=number), text, 2) for number, text in enumerate(subjects, 1))
    return sample_report(attacked=Attacked(campaigns=campaigns))


def test_the_file_has_the_figures_of_the_report() -> None:
    text = text_in(write_pdf(sample_report(), NOW))
    for part in ("Weekly report", "Acme Ltd", "2026-11-09", "700 messages were scanned", "ann@acme[.]example",
                 "evil[.]example", "quarantine 63 9.0 %", "Made by Mailwarden at 2026-11-16 06:00 UTC"):  # fmt: skip
        assert part in text, part


def test_hostile_text_is_text_and_no_link() -> None:
    content = write_pdf(with_subjects(HOSTILE, "/URI (x) >> endobj", "\x00\ud800\u202emoc.live", "\\"), NOW)
    text = text_in(content)
    assert "https[:]//evil[.]example/a <script>alert(1)</script> Bcc" in text
    for name in (b"/URI", b"/JavaScript", b"/JS", b"/Launch", b"/OpenAction", b"/Annot", b"/EmbeddedFile"):
        assert not re.search(name + rb"\b", content), name


def test_names_in_other_scripts_are_drawn_or_marked() -> None:
    text = text_in(write_pdf(with_subjects("Счёт за ноябрь", "Τιμολόγιο", "Žluťoučký Łódź", "Fælles løn"), NOW))
    for part in ("Счёт за ноябрь", "Τιμολόγιο", "Žluťoučký Łódź", "Fælles løn"):
        assert part in text
    assert BOX not in text
    text = text_in(write_pdf(with_subjects("請求書 4711", "חשבונית", "فاتورة"), NOW))
    assert f"{BOX * 3} 4711" in text
    assert "stands for a character that this file cannot show" in text


def test_a_long_report_has_several_pages() -> None:
    content = write_pdf(with_subjects(*("w" * 2_000 for _ in range(90))), NOW)
    document = pypdfium2.PdfDocument(content)
    assert len(document) > 2
    document.close()
    assert len(content) < 100_000


def test_the_font_is_the_one_that_its_package_ships() -> None:
    (source,) = YAML(typ="safe").load(FONT_FILE.parent / "SOURCES.yml")
    assert source["file"] == FONT_FILE.name
    assert hashlib.sha256(FONT_FILE.read_bytes()).hexdigest() == source["sha256"]
    assert "Bitstream" in (FONT_FILE.parent / "LICENSE.txt").read_text("utf-8")
