"""The weekly report as a PDF file: plain text and bars on A4, without links, scripts and pictures.

Security: subjects, senders and recipients are hostile text. They are drawn as characters and never parsed as markup:
only the canvas of the library is used, none of its paragraphs. Dots of host names and schemes are spoiled, because
readers make links of plain text. Text is drawn from left to right; a character that the font lacks, or that needs
shaping or another direction, is drawn as a box, and the page says so.
"""

import io
import threading
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from reportlab.lib.pagesizes import A4
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from mailwarden.model.outcome import Decision
from mailwarden.quarantine.digest import inert_text
from mailwarden.weekly_report.model import DAYS, Figure, WeeklyReport, sentences_of

FONT = "DejaVuSans"
FONT_FILE = Path(__file__).parent / "fonts" / "DejaVuSans.ttf"
MARGIN = 54.0
WIDTH, HEIGHT = A4
TEXT_WIDTH = WIDTH - 2 * MARGIN
BODY, SMALL, HEADING, TITLE = 10.0, 8.0, 13.0, 18.0
MAX_TEXT = 110  # characters of a subject, a sender or a recipient
BOX = "\N{WHITE VERTICAL RECTANGLE}"
INK, PALE, BAR = (0.11, 0.15, 0.23), (0.42, 0.46, 0.54), (0.16, 0.36, 0.68)
_NOT_DRAWN = frozenset({"R", "AL", "AN", "NSM", "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN"})
_lock = threading.Lock()  # the library keeps fonts in global tables


class Drawn:
    """Text as it can be drawn, and whether a character was replaced."""

    def __init__(self) -> None:
        self.replaced = False

    def text(self, text: str) -> str:
        known = _known_characters()
        drawn = [
            each if ord(each) in known and unicodedata.bidirectional(each) not in _NOT_DRAWN else BOX
            for each in unicodedata.normalize("NFC", text)
        ]
        self.replaced = self.replaced or BOX in drawn
        return "".join(drawn)

    def untrusted(self, text: str) -> str:
        """Return one line of hostile text, cut, without links."""
        return self.text(inert_text(text, MAX_TEXT)) or "(empty)"


@cache
def _known_characters() -> frozenset[int]:
    font = TTFont(FONT, str(FONT_FILE))
    pdfmetrics.registerFont(font)
    return frozenset(font.face.charToGlyph)


def write_pdf(report: WeeklyReport, now: datetime) -> bytes:
    """Return the file. It takes some ten milliseconds of CPU time: call it in a thread."""
    with _lock:
        return _Document(report, now).write()


class _Document:
    def __init__(self, report: WeeklyReport, now: datetime) -> None:
        self._report = report
        self._now = now
        self._drawn = Drawn()
        self._buffer = io.BytesIO()
        self._name = self._drawn.untrusted(report.tenant_name)
        self._canvas = Canvas(self._buffer, pagesize=A4, pageCompression=1, initialFontName=FONT, lang="en")
        self._canvas.setTitle(f"Weekly report of {inert_text(report.tenant_name, MAX_TEXT)}, {report.week}")
        self._canvas.setAuthor("Mailwarden")
        self._y = HEIGHT - MARGIN
        self._page = 1

    def write(self) -> bytes:
        report = self._report
        self._line("Weekly report", TITLE)
        self._line(f"{self._name}: {report.week.title} (UTC)", BODY, PALE)
        self._y -= 6
        for sentence in sentences_of(report):
            self._wrapped(sentence)
        self._figures("Key figures", report.headline_figures)
        self._days()
        for title, figures in report.shares:
            self._figures(f"By {title.lower()}", figures, shares=True)
        attacked = report.attacked
        self._counted("Most attacked recipients", attacked.recipients)
        self._counted("Domains that sent most attacks", attacked.senders)
        self._counted("Largest campaigns", [(each.subject, each.messages) for each in attacked.campaigns])
        self._figures("Actions of users", report.user_figures)
        self._notes()
        self._end_page()
        self._canvas.save()
        return self._buffer.getvalue()

    def _notes(self) -> None:
        self._y -= 8
        self._wrapped(
            "Attacks are messages with the verdict malware, phishing, fraud or spoof. A message counts for each of its "
            "recipients. Held messages count while the quarantine has them on record.",
            SMALL,
        )
        if self._drawn.replaced:
            self._wrapped(f"{BOX} stands for a character that this file cannot show. The console shows it.", SMALL)
        self._wrapped(f"Made by Mailwarden at {self._now:%Y-%m-%d %H:%M} UTC.", SMALL)

    def _figures(self, title: str, figures: Sequence[Figure], *, shares: bool = False) -> None:
        if not figures:
            return
        self._heading(title, ("This week", "Share") if shares else ("This week",))
        for each in figures:
            now = "not counted" if each.now is None else f"{each.now:,}"
            before = "not known" if each.before is None else f"{each.before:,}"
            cells = (now, self._report.share(each), before, each.change) if shares else (now, "", before, each.change)
            self._row(each.name, cells)

    def _counted(self, title: str, counted: Sequence[tuple[str, int]]) -> None:
        if not counted:
            return
        self._room(60)
        self._y -= 10
        self._line(title, HEADING)
        for value, messages in counted:
            self._row(self._drawn.untrusted(value), ("", "", "", f"{messages:,}"))

    def _days(self) -> None:
        """Draw the messages of each day as bars."""
        report = self._report
        counts = []
        for number in range(DAYS):
            day = report.week.monday + timedelta(days=number)
            figures = report.figures.days.get(day, {})
            total = sum(figures.get(f"decision:{each}", 0) for each in Decision)
            counts.append((f"{day:%a %m-%d}", total, day in report.figures.counted))
        most = max((total for _, total, _ in counts), default=0)
        self._room(40 + 14 * DAYS)
        self._y -= 10
        self._line("Messages by day", HEADING)
        for name, total, counted in counts:
            self._room(15)
            self._y -= 11
            self._put(MARGIN, name, BODY)
            if most and total:
                self._canvas.setFillColorRGB(*BAR)
                self._canvas.rect(MARGIN + 80, self._y - 1, 300 * total / most, 8, stroke=0, fill=1)
            self._put(WIDTH - MARGIN, f"{total:,}" if counted else "not counted", BODY, right=True)
            self._y -= 4

    def _heading(self, title: str, columns: Sequence[str]) -> None:
        self._room(60)
        self._y -= 10
        self._line(title, HEADING)
        names = (*columns, *([""] if len(columns) == 1 else []), "Week before", "Change")
        self._y += 8
        self._row("", names, SMALL, PALE)

    def _row(
        self, name: str, cells: Sequence[str], size: float = BODY, colour: tuple[float, float, float] = INK
    ) -> None:
        """Draw a row: its name, cut to the room that is left, and its cells aligned to the right."""
        self._room(15)
        left = TEXT_WIDTH - 20 - (260 if any(cells[:3]) else 60)
        self._y -= 11
        self._put(MARGIN, _cut(name, size, left), size, colour)
        for number, cell in enumerate(reversed(cells)):
            self._put(WIDTH - MARGIN - number * 68, cell, size, colour, right=True)
        self._y -= 4

    def _wrapped(self, text: str, size: float = BODY) -> None:
        for line in _lines(self._drawn.text(text), size, TEXT_WIDTH):
            self._line(line, size)

    def _line(self, text: str, size: float, colour: tuple[float, float, float] = INK) -> None:
        self._room(size * 1.5)
        self._y -= size
        self._put(MARGIN, text, size, colour)
        self._y -= size * 0.5

    def _put(
        self, x: float, text: str, size: float, colour: tuple[float, float, float] = INK, *, right: bool = False
    ) -> None:
        self._canvas.setFillColorRGB(*colour)
        self._canvas.setFont(FONT, size)
        (self._canvas.drawRightString if right else self._canvas.drawString)(x, self._y, text)

    def _room(self, height: float) -> None:
        if self._y - height < MARGIN:
            self._end_page()
            self._page += 1
            self._y = HEIGHT - MARGIN

    def _end_page(self) -> None:
        self._y = MARGIN / 2
        self._put(MARGIN, f"{self._name}, {self._report.week}", SMALL, PALE)
        self._put(WIDTH - MARGIN, f"Page {self._page}", SMALL, PALE, right=True)
        self._canvas.showPage()


def _width(text: str, size: float) -> float:
    return float(pdfmetrics.stringWidth(text, FONT, size))


def _cut(text: str, size: float, width: float) -> str:
    if _width(text, size) <= width:
        return text
    while text and _width(text + "…", size) > width:
        text = text[:-1]
    return text + "…"


def _lines(text: str, size: float, width: float) -> Sequence[str]:
    """Return the text in lines that fit; a word that is too long is cut."""
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if _width(longer, size) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        line = _cut(word, size, width)
    return [*lines, line] if line else lines
