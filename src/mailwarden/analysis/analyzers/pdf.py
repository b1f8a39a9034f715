"""What the PDF files of a message do when they are opened, and where they lead.

Security: works on hostile files inside a killable worker; files, pages, bytes and time are bounded, nothing is run.
"""

import time
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.coins import find_bitcoin_address
from mailwarden.analysis.file_links import lone_stranger, look_at_links_of
from mailwarden.analysis.file_types import (
    DANGEROUS,
    HEAD,
    is_archive_name,
    kind_by_content,
    kind_by_name,
    promises_macros,
)
from mailwarden.analysis.folding import fold
from mailwarden.analysis.link_target import Ties, ties_of
from mailwarden.analysis.moderation import few_of_each_kind
from mailwarden.analysis.passwords import find_passwords
from mailwarden.analysis.pdf_pages import PdfPages, read_pages
from mailwarden.analysis.pdf_scan import PdfScan, scan_pdf
from mailwarden.analysis.phone_numbers import find_phone
from mailwarden.analysis.phrases import load_books
from mailwarden.analysis.unpacking import SeenFile
from mailwarden.analysis.view import PAGE_ENDINGS, View
from mailwarden.model.evidence import Fact, Finding

SECONDS = 3.0  # for all files of a message; what is left then is a failure, never a message without findings
MAX_READ = 50  # files whose pages are read; what the others do is looked at all the same
LITTLE_TEXT = 800
FEW_PAGES = 2
SMALL = 1024 * 1024
SHORT = 1_500  # characters of a message that leaves everything to its file
_TOLD = 200
_LEADING = frozenset({"URI", "SubmitForm", "GoToR", "GoToE", "ImportData"})

_ACTIONS = {"script": "script", "launch": "launch", "submits": "form", "media": "media"}


class PdfAnalyzer:
    name: ClassVar[str] = "pdf"

    def examine(self, view: View) -> Iterator[Finding]:
        return few_of_each_kind(_look(view))


def _look(view: View) -> Iterator[Finding]:
    deadline = time.monotonic() + SECONDS
    for number, file in enumerate(_documents(view)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the PDF files took longer than {SECONDS:g} s")
        yield from _look_at(file, view, reads=number < MAX_READ)


def _documents(view: View) -> Iterator[SeenFile]:
    """Yield each PDF file, and a copy of one in another part too: what lists allow is told by its place."""
    seen: set[tuple[str, bytes]] = set()
    for file in view.opened_files:
        known = (file.part.path, file.content)
        if kind_by_content(file.content[:HEAD]) == "pdf" and known not in seen:
            seen.add(known)
            yield file


def _look_at(file: SeenFile, view: View, *, reads: bool) -> Iterator[Finding]:
    scan = scan_pdf(file.content)
    told: dict[str, Fact] = {"name": file.name[:_TOLD] or "without a name"}
    place = file.part.place
    for action in sorted(scan.actions & _ACTIONS.keys()):
        yield Finding(f"pdf.{_ACTIONS[action]}", place, told)
    yield from _look_at_opening(scan, place, told)
    if "script" in scan.actions and "exports" in scan.actions:
        yield Finding("pdf.script-reaches-out", place, told)
    if "elsewhere" in scan.actions and (shares := [name for name in scan.files if name.startswith(("\\\\", "//"))]):
        yield Finding("pdf.remote-file", place, {**told, "target": shares[0][:_TOLD]})
    if scan.disguised:
        yield Finding("pdf.disguised-name", place, {**told, "word": scan.disguised[0][:_TOLD]})
    if "embedded" in scan.actions:
        programs = [name for name in scan.files if kind_by_name(name) in DANGEROUS or promises_macros(name)]
        if programs:
            yield Finding("pdf.embedded-program", place, {**told, "member": programs[0][:_TOLD]})
        elif hiding := [name for name in scan.files if name.lower().endswith(PAGE_ENDINGS) or is_archive_name(name)]:
            yield Finding("pdf.embedded-page", place, {**told, "member": hiding[0][:_TOLD]})
        else:
            yield Finding("pdf.embedded-file", place, told)
    if not reads:
        yield from look_at_links_of(place, scan.links, ties_of(view))
        return
    if "encrypted" in scan.actions:
        yield from _look_at_lock(file, view, told)
        return
    yield from _look_at_links(file, scan, ties_of(view))
    if not scan.links and len(file.content) <= SMALL and len(view.text) <= SHORT:
        yield from _look_at_text(file, told)


def _look_at_opening(scan: PdfScan, place: str, told: dict[str, Fact]) -> Iterator[Finding]:
    if "script" in scan.actions and "opens" in scan.actions:
        yield Finding("pdf.script-at-opening", place, told)
    if "JavaScript" in scan.opening:
        yield Finding("pdf.opening-script", place, told)
    if scan.scripts.acts:
        yield Finding("pdf.document-script-acts", place, {**told, "how": scan.scripts.acts})
    elif scan.scripts.runs:
        yield Finding("pdf.document-script", place, told)
    if leading := sorted(scan.opening & _LEADING):
        yield Finding("pdf.opening-link", place, {**told, "action": leading[0]})


def _look_at_text(file: SeenFile, told: dict[str, Fact]) -> Iterator[Finding]:
    """Tell charges and threats that stand in a small document, where the message itself says nothing."""
    pages = read_pages(file.content)
    text = pages.text if 0 < pages.number <= FEW_PAGES else ""
    folded = fold(text)
    phone, coins = find_phone(folded), find_bitcoin_address(text)
    heard = load_books().find(folded) if phone or coins else {}
    if phone and "fraud.charge-notice" in heard and "fraud.call-us" in heard:
        yield Finding("pdf.callback", file.part.place, {**told, "words": heard["fraud.charge-notice"].words})
    threats = [each for family, each in heard.items() if family.startswith("fraud.blackmail")]
    if coins and threats:
        yield Finding("pdf.blackmail", file.part.place, {**told, "words": threats[0].words})


def _look_at_lock(file: SeenFile, view: View, told: dict[str, Fact]) -> Iterator[Finding]:
    """Tell whether the file asks for a password, and whether the message tells it."""
    if read_pages(file.content).locked:
        yield Finding("pdf.locked", file.part.place, told)
        if find_passwords(f"{view.subject}\n{view.text}"):
            yield Finding("pdf.locked-with-password", file.part.place, told)


def _look_at_links(file: SeenFile, scan: PdfScan, ties: Ties) -> Iterator[Finding]:
    yield from look_at_links_of(file.part.place, scan.links, ties)
    if (host := lone_stranger(scan.links, ties)) and _is_bait(read_pages(file.content)):
        yield Finding("pdf.bait", file.part.place, {"name": file.name[:_TOLD], "host": host})


def _is_bait(pages: PdfPages) -> bool:
    """Tell whether a document is a page or two with next to no text: something to click and nothing to read."""
    return not pages.locked and 0 < pages.number <= FEW_PAGES and pages.letters < LITTLE_TEXT
