"""What the attachments are: programs and scripts, files that pretend, archives that hide, macros, web pages.

Security: works on hostile files inside a killable worker; archives are opened under limits, nothing is executed,
written or fetched, findings are bounded and facts are cut.
"""

from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.file_types import (
    DANGEROUS,
    DISK_IMAGE,
    HEAD,
    WEB_PAGE,
    ask_libmagic,
    ending_of,
    has_double_ending,
    keeps_promise,
    kind_by_content,
    kind_by_name,
    promises_macros,
)
from mailwarden.message.archives import ArchiveReport, Member, archive_kind, open_archive
from mailwarden.message.message import Message, Part
from mailwarden.model.evidence import Finding

MEMBERS_TOLD = 10  # of one archive; the rest of them says nothing new
TURNING = frozenset("\u202a\u202b\u202d\u202e\u2066\u2067\u2068")

_OFFICE_MARKS = (b"[Content_Types].xml", b"mimetype")
_OLE_MACROS = ("VBA_PROJECT".encode("utf-16-le"), "_VBA_PROJECT_CUR".encode("utf-16-le"))
_BODY_TYPES = frozenset({"text/plain", "text/html"})


class AttachmentsAnalyzer:
    name: ClassVar[str] = "attachments"

    def examine(self, message: Message) -> Iterator[Finding]:
        for part in message.parts:
            if part.name or part.disposition == "attachment" or part.media_type not in _BODY_TYPES:
                yield from examine_attachment(part)


def examine_attachment(part: Part) -> Iterator[Finding]:
    """Look at the name, then at the content, then into it."""
    yield from _look_at_name(part, part.name)
    kind = kind_by_content(part.content[:HEAD])
    if not kind and part.name and not part.media_type.startswith("text/"):
        kind = ask_libmagic(part.content)
    yield from _look_at_content(part, kind)
    if kind == "ole" and any(mark in part.content for mark in _OLE_MACROS):
        yield _finding("macro", part)
    if kind not in _CLOSED and archive_kind(part.content):
        yield from _look_inside(part, open_archive(part.name, part.content))


_CLOSED = frozenset({"pdf", "jpeg", "png", "gif", "ole", "rtf", "bmp", "tiff", "ogg", "mp3", "media"})


def _look_at_name(part: Part, name: str) -> Iterator[Finding]:
    if not TURNING.isdisjoint(name):
        yield _finding("rtl-name", part, name=name)
    if has_double_ending(name):
        yield _finding("double-extension", part, name=name)


def _look_at_content(part: Part, kind: str) -> Iterator[Finding]:
    promised = kind_by_name(part.name)
    if kind in DANGEROUS and not promised and not keeps_promise(part.name, kind):
        yield _finding("disguised-executable", part, type=kind)
    elif promised or kind in DANGEROUS:
        yield _finding("executable", part, type=promised or kind)
    elif not keeps_promise(part.name, kind):
        yield _finding("type-mismatch", part, type=kind)
    if kind == WEB_PAGE or ending_of(part.name) in {"htm", "html", "xhtml", "shtml"}:
        if part.name or part.disposition == "attachment":
            yield _finding("html-attachment", part)
    elif promises_macros(part.name):
        yield _finding("macro", part)


def _look_inside(part: Part, archive: ArchiveReport) -> Iterator[Finding]:
    if archive.encrypted:
        yield _finding("encrypted-archive", part, type=archive.kind)
    if archive.tripped:
        yield _finding("archive-limit", part, sentence=archive.tripped[0].rstrip("."))
    if archive.unreadable and kind_by_name(part.name) != DISK_IMAGE:
        yield _finding("archive-unreadable", part, sentence=archive.unreadable[0].rstrip("."))
    if _is_office(part, archive):
        if not promises_macros(part.name) and any(m.path.lower().endswith("vbaproject.bin") for m in archive.members):
            yield _finding("macro", part)
        return
    told = 0
    for member in archive.members:
        for finding in _look_at_member(part, member):
            yield finding
            told += 1
        if told >= MEMBERS_TOLD:
            return


def _look_at_member(part: Part, member: Member) -> Iterator[Finding]:
    name = member.path.rpartition(" > ")[2]
    kind = kind_by_name(name) or kind_by_content(member.head)
    yield from _look_at_name(part, name)
    if kind in DANGEROUS:
        yield _finding("executable-in-archive", part, member=name, type=kind)
    elif archive_kind(member.head) and not name.lower().endswith((".docx", ".xlsx", ".pptx")):
        yield _finding("nested-archive", part, member=name, type=archive_kind(member.head))
    if promises_macros(name) or name.lower().endswith("vbaproject.bin"):
        yield _finding("macro", part, name=name)


def _is_office(part: Part, archive: ArchiveReport) -> bool:
    """Tell a document, which is a zip too, from an archive: its own files are not what people open."""
    return archive.kind == "zip" and any(mark in part.content[:HEAD] for mark in _OFFICE_MARKS)


def _finding(what: str, part: Part, **facts: str) -> Finding:
    told = {"name": part.name or "without a name", "type": part.media_type, "path": part.path, **facts}
    return Finding(f"attachments.{what}", part.place, {key: value[:200] for key, value in told.items()})
