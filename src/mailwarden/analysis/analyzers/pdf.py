"""Reports dangerous PDF files: their actions on opening, their scripts and their links.

Security: works on hostile files inside a killable worker; files, pages, bytes and time are bounded, nothing is run.
"""

from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.analyzer import limit_each_kind
from mailwarden.analysis.links.targets import Parties, look_at_links_of, only_third_party, parties_of
from mailwarden.analysis.text.extraction import find_bitcoin_address, find_phone
from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.text.phrases import load_books
from mailwarden.analysis.text.renderings import PAGE_ENDINGS
from mailwarden.analysis.view import View
from mailwarden.files.file_types import (
    DANGEROUS,
    is_archive_name,
    kind_by_name,
    promises_macros,
)
from mailwarden.files.pdf.document import PdfReading
from mailwarden.files.pdf.scan import PdfScan
from mailwarden.files.unpacking import SeenFile
from mailwarden.message.limits import SHOWN
from mailwarden.model.evidence import Fact, Finding, Omitted
from mailwarden.model.place import Place

LITTLE_TEXT = 800
FEW_PAGES = 2
SMALL = 1024 * 1024
SHORT = 1_500  # characters of a message that leaves everything to its file
_LEADING = frozenset({"URI", "SubmitForm", "GoToR", "GoToE", "ImportData"})

_ACTIONS = {"script": "script", "launch": "launch", "submits": "form", "media": "media"}


class PdfAnalyzer:
    name: ClassVar[str] = "pdf"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        return limit_each_kind(_look(view))


def _look(view: View) -> Iterator[Finding]:
    for file, scan in view.pdfs:
        yield from _look_at(file, scan, view)


def _look_at(file: SeenFile, scan: PdfScan, view: View) -> Iterator[Finding]:
    base_facts: dict[str, Fact] = {"name": file.name[: SHOWN.fact] or "without a name"}
    place = file.part.place
    for action in sorted(scan.actions & _ACTIONS.keys()):
        yield Finding(f"pdf.{_ACTIONS[action]}", place, base_facts)
    yield from _look_at_opening(scan, place, base_facts)
    if "script" in scan.actions and "exports" in scan.actions:
        yield Finding("pdf.script-external-access", place, base_facts)
    if "elsewhere" in scan.actions and (shares := [name for name in scan.files if name.startswith(("\\\\", "//"))]):
        yield Finding("pdf.remote-file", place, {**base_facts, "target": shares[0][: SHOWN.fact]})
    if scan.disguised:
        yield Finding("pdf.obfuscated-name", place, {**base_facts, "word": scan.disguised[0][: SHOWN.fact]})
    if "embedded" in scan.actions:
        programs = [name for name in scan.files if kind_by_name(name) in DANGEROUS or promises_macros(name)]
        if programs:
            yield Finding("pdf.embedded-executable", place, {**base_facts, "member": programs[0][: SHOWN.fact]})
        elif hiding := [name for name in scan.files if name.lower().endswith(PAGE_ENDINGS) or is_archive_name(name)]:
            yield Finding("pdf.embedded-page", place, {**base_facts, "member": hiding[0][: SHOWN.fact]})
        else:
            yield Finding("pdf.embedded-file", place, base_facts)
    if scan.reading.locked or scan.reading.password:
        yield from _look_at_lock(file, scan, view, base_facts)
    yield from _look_at_links(file, scan, parties_of(view))
    if not scan.links and len(file.content) <= SMALL and len(view.text) <= SHORT:
        yield from _look_at_text(file, scan.reading, base_facts)


def _look_at_opening(scan: PdfScan, place: Place, base_facts: dict[str, Fact]) -> Iterator[Finding]:
    if "script" in scan.actions and "opens" in scan.actions:
        yield Finding("pdf.script-on-open", place, base_facts)
    if "JavaScript" in scan.opening:
        yield Finding("pdf.open-action-script", place, base_facts)
    if scan.scripts.acts:
        yield Finding("pdf.document-script-external-access", place, {**base_facts, "how": scan.scripts.acts})
    elif scan.scripts.runs:
        yield Finding("pdf.document-script", place, base_facts)
    if leading := sorted(scan.opening & _LEADING):
        yield Finding("pdf.open-action-link", place, {**base_facts, "action": leading[0]})


def _look_at_text(file: SeenFile, pages: PdfReading, base_facts: dict[str, Fact]) -> Iterator[Finding]:
    """Yield charges and threats in a small document."""
    text = pages.text if 0 < pages.pages <= FEW_PAGES else ""
    folded = fold(text)
    phone, coins = find_phone(folded), find_bitcoin_address(text)
    match = load_books().find(folded) if phone or coins else {}
    if phone and "fraud.charge-notice" in match and "fraud.call-request" in match:
        yield Finding("pdf.callback", file.part.place, {**base_facts, "words": match["fraud.charge-notice"].words})
    threats = [each for family, each in match.items() if family.startswith("fraud.extortion-")]
    if coins and threats:
        yield Finding("pdf.extortion", file.part.place, {**base_facts, "words": threats[0].words})


def _look_at_lock(file: SeenFile, scan: PdfScan, view: View, base_facts: dict[str, Fact]) -> Iterator[Finding]:
    """Return whether the file asks for a password, and whether the message gives one."""
    yield Finding("pdf.encrypted", file.part.place, base_facts)
    if scan.reading.password or view.passwords:
        yield Finding("pdf.encrypted-with-password", file.part.place, base_facts)


def _look_at_links(file: SeenFile, scan: PdfScan, parties: Parties) -> Iterator[Finding]:
    yield from look_at_links_of(file.part.place, scan.links, parties)
    clicked = [link for link in scan.links if link not in scan.files]  # an address that a form is sent to is no bait
    if (host := only_third_party(clicked, parties)) and _is_bait(scan.reading):
        yield Finding("pdf.lure", file.part.place, {"name": file.name[: SHOWN.fact], "host": host})


def _is_bait(pages: PdfReading) -> bool:
    """Return whether a document is a page or two with next to no text: something to click and nothing to read."""
    return 0 < pages.pages <= FEW_PAGES and pages.letters < LITTLE_TEXT
