"""Reports dangerous Office documents: macros, content loaded from elsewhere, DDE, packed files.

Security: works on hostile documents inside a killable worker; reads are bounded, nothing in them is run, and
facts are cut.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.analyzer import limit_each_kind
from mailwarden.analysis.links.targets import Parties, look_at_links_of, only_third_party, parties_of
from mailwarden.analysis.view import View
from mailwarden.files import file_types
from mailwarden.files.file_types import DANGEROUS, HEAD, kind_by_content, kind_by_name
from mailwarden.files.office.compound import DEFAULT_PASSWORD
from mailwarden.files.office.documents import SeenDocument
from mailwarden.files.office.onenote import ONENOTE, onenote_files, onenote_names
from mailwarden.files.rtf import OfficeDocument
from mailwarden.files.unpacking import SeenFile
from mailwarden.message.coverage import Coverage
from mailwarden.message.file_names import ending_of
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of
from mailwarden.model.evidence import Finding, Omitted

_RUNS_BY_ITSELF = re.compile(
    r"\b(?:auto_?(?:open|exec|close|exit|new)|document_?(?:open|close|new|beforeclose)|workbook_?(?:open|activate"
    r"|beforeclose)|workbook_open|app_?documentopen|\w{1,40}_(?:painted|painting|gotfocus|layout|mousemove|onenter)"
    r")\s{0,5}\(",
    re.IGNORECASE,
)
_REACHES_OUT = re.compile(
    r"wscript\.shell|shell\.application|\bshell\s{0,3}[(\"]|\bshell\s{1,3}\w|shellexecute|urldownloadtofile|xmlhttp"
    r"|winhttp\.|adodb\.stream|powershell|\bcmd(?:\.exe)?\s{0,3}/|mshta|regsvr32|rundll32|certutil|bitsadmin|wmic\b"
    r"|win32_process|createthread|virtualalloc|rtlmovememory|writeprocessmemory|executeexcel4macro|createobject\(chr"
    r"|callbyname|schedule\.service|internetopen",
    re.IGNORECASE,
)
# In text that a spreadsheet reads: a cell that asks another program, as `=cmd|'/c calc'!A0`.
_CELL_COMMAND = re.compile(
    rb"[=+@-][ \t]{0,5}(?:\w{1,20}\()?[\"' ]{0,3}"
    rb"(?:cmd|powershell|mshta|wscript|rundll32|regsvr32|msexcel)(?:\.exe)?\|",
    re.IGNORECASE,
)
# A cell that fetches something from the web, or sends its neighbours there.
_CELL_REACHES = re.compile(
    rb"(?:^|[,;\t\"\r\n])[ ]{0,5}[=+@-]{1,2}[ ]{0,5}(?:(WEBSERVICE|IMPORT(?:XML|DATA|HTML|FEED)|IMAGE)"
    rb"[ ]{0,5}\([\"' ]{0,5}https?:|HYPERLINK[ ]{0,5}\([\"' ]{0,5}https?:[^\"'\r\n]{0,300}[\"' ]{1,5}&)",
    re.IGNORECASE,
)
_REMOTE_FINDINGS = {
    "attachedtemplate": "remote-template",
    "externallinkpath": "remote-template",
    "image": "remote-image",
}
LITTLE_TEXT = 800  # letters of a document that is nothing but a link
_SCRIPT_STARTS = (b"<script", b"<html", b"<hta", b"@echo", b"powershell", b"cmd ", b"set ", b"dim ", b"var ",
                  b"on error", b"wscript", b"function ", b"<job", b"<package", b"start ", b"curl ")  # fmt: skip


class OfficeAnalyzer:
    name: ClassVar[str] = "office"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        return limit_each_kind(self._look(view))

    def _look(self, view: View) -> Iterator[Finding]:
        known = {id(seen.file) for seen in view.office_documents}
        for file in view.opened_files:
            ending = ending_of(file.name)
            if file.content.startswith(ONENOTE) or ending in {"one", "onepkg"}:
                yield from _look_at_onenote(file, view.coverage)
            elif ending in {"csv", "slk", "iqy"} and _CELL_COMMAND.search(file.content):
                yield _finding("dde", file, program="a command in a cell")
            elif ending == "csv" and b"http" in file.content and (cell := _CELL_REACHES.search(file.content)):
                yield _finding("external-formula", file, formula=(cell[1] or b"HYPERLINK").decode("ascii"))
            elif id(file) not in known and file_types.promises_macros(file.name):
                yield _finding("macro", file)
        for seen in view.office_documents:
            if seen.password == DEFAULT_PASSWORD:
                yield _finding("default-password", seen.file)
            yield from _look_at_document(seen)
        for seen in view.office_documents:  # last: links are many, and must not crowd out what a document does
            if seen.document.links or seen.document.remote:
                yield from _look_at_places(seen.file, seen.document, parties_of(view))


def _look_at_document(seen: SeenDocument) -> Iterator[Finding]:
    file, document, kind = seen.file, seen.document, seen.kind
    if document.macros or file_types.promises_macros(file.name):
        yield from _look_at_macros(file, document)
    if document.macro_sheets:
        yield _finding("macro-sheet", file)
    for relation, target in document.remote:
        yield _finding(_REMOTE_FINDINGS.get(relation, "remote-object"), file, target=target)
    if document.dde:
        yield _finding("dde", file, program=document.dde)
    if document.exploit:
        yield _finding("exploit", file, how=document.exploit)
    if document.active:
        yield _finding("ole-object", file)
    for name, content in document.packages:
        if kind_by_name(name) or file_types.promises_macros(name) or kind_by_content(content[:HEAD]) in DANGEROUS:
            yield _finding("embedded-executable", file, member=name)
            break
    disguised = kind != "rtf" and file.name and not file_types.keeps_promise(file.name, kind)
    if document.macros and disguised:
        yield _finding("macro-type-mismatch", file)


def _look_at_places(file: SeenFile, document: OfficeDocument, parties: Parties) -> Iterator[Finding]:
    """Look at whose places a document loads from and leads to."""
    for relation, target in document.remote:
        if relation == "attachedtemplate" and (host := host_of(target)) and parties.is_third_party(host):
            yield _finding("unrelated-template", file, host=host)
    yield from look_at_links_of(file.part.place, document.links, parties)
    if 0 <= document.letters < LITTLE_TEXT and (host := only_third_party(document.links, parties)):
        yield _finding("lure", file, host=host)


def _look_at_macros(file: SeenFile, document: OfficeDocument) -> Iterator[Finding]:
    yield _finding("macro", file)
    starts = _RUNS_BY_ITSELF.search(document.code)
    reaches = _REACHES_OUT.search(document.code)
    if starts:
        yield _finding("auto-macro", file, word=starts[0].rstrip("( \t"))
    if reaches:
        yield _finding("macro-system-access", file, word=reaches[0])


def _look_at_onenote(file: SeenFile, coverage: Coverage) -> Iterator[Finding]:
    yield _finding("onenote", file)
    name = next(onenote_names(file.content, coverage, file.place), "")
    if name or any(map(_is_program, onenote_files(file.content))):
        yield _finding("onenote-executable", file, member=name or "without a name")


def _is_program(content: bytes) -> bool:
    start = content[:HEAD].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return kind_by_content(content[:HEAD]) in DANGEROUS or start.startswith(_SCRIPT_STARTS)


def _finding(what: str, file: SeenFile, **facts: str) -> Finding:
    all_facts = {"name": file.name or "without a name", "path": file.part.path, **facts}
    return Finding(f"office.{what}", file.part.place, {key: value[: SHOWN.fact] for key, value in all_facts.items()})
