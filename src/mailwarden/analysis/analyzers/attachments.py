"""What the attachments are: programs and scripts, files that pretend, archives that hide, macros, web pages.

Security: works on hostile files inside a killable worker; archives are opened under limits, nothing is executed,
written or fetched, findings are bounded and facts are cut.
"""

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

from mailwarden.analysis import file_types
from mailwarden.analysis.bodies import is_shown
from mailwarden.analysis.file_types import DANGEROUS, DISK_IMAGE, HEAD, WEB_PAGE, kind_by_content, kind_by_name
from mailwarden.analysis.view import View
from mailwarden.message.archives import ArchiveReport, Member, archive_kind, open_archive
from mailwarden.message.message import Part
from mailwarden.model.evidence import Finding

MEMBERS_TOLD = 10  # findings about the files of one archive; more of them say nothing new
TURNING = frozenset("\u202b\u202d\u202e\u2067")

_CLOSED = frozenset({"pdf", "jpeg", "png", "gif", "ole", "rtf", "bmp", "tiff", "webp", "heic", "ogg", "mp3", "media"})
_OLE_MACROS = "VBA_PROJECT".encode("utf-16-le")
_OLE_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")


class AttachmentsAnalyzer:
    name: ClassVar[str] = "attachments"

    def examine(self, view: View) -> Iterator[Finding]:
        for part in view.message.parts:
            yield from examine_part(part)


def examine_part(part: Part) -> Iterator[Finding]:
    """Look at the name, then at the content, then into it."""
    kind = kind_by_content(part.content[:HEAD])
    if is_shown(part) and kind in {"", WEB_PAGE}:
        return  # a body; what it says is for other analyzers
    if not kind and file_types.promises_kind(part.name):
        kind = file_types.ask_libmagic(part.content)
    yield from _look_at_name(part, part.name)
    yield from _look_at_kind(part, kind)
    if kind == "ole" and _OLE_MACROS in part.content:
        yield _finding("macro", part)
    if kind == "ole" and _OLE_ENCRYPTED in part.content:
        yield _finding("encrypted-archive", part, type="Office document")
    may_hold_files = kind not in _CLOSED or file_types.is_archive_name(part.name)
    if may_hold_files and archive_kind(part.content):
        yield from _look_inside(part, open_archive(part.name, part.content))


def _look_at_name(part: Part, name: str) -> Iterator[Finding]:
    if not TURNING.isdisjoint(name):
        yield _finding("rtl-name", part, name=name)
    if file_types.has_double_ending(name):
        yield _finding("double-extension", part, name=name)


def _look_at_kind(part: Part, kind: str) -> Iterator[Finding]:
    """Compare what the name promises with what the content is."""
    promised = kind_by_name(part.name)
    honest = file_types.keeps_promise(part.name, kind)
    if promised:
        yield _finding("executable", part, type=promised)
    elif kind in DANGEROUS:
        yield _finding("executable" if honest else "disguised-executable", part, type=kind)
    elif not honest:
        yield _finding("type-mismatch", part, type=kind)
    if kind == WEB_PAGE or file_types.ending_of(part.name) in {"htm", "html", "xhtml", "shtml"}:
        yield _finding("html-attachment", part)
    if file_types.promises_macros(part.name):
        yield _finding("macro", part)


def _look_inside(part: Part, archive: ArchiveReport) -> Iterator[Finding]:
    if archive.encrypted:
        yield _finding("encrypted-archive", part, type=archive.kind)
    if archive.tripped:
        yield _finding("archive-limit", part, sentence=archive.tripped[0].rstrip("."))
    if archive.unreadable and kind_by_name(part.name) != DISK_IMAGE:
        yield _finding("archive-unreadable", part, sentence=archive.unreadable[0].rstrip("."))
    if file_types.is_office_name(part.name):  # a zip too, but the reader opens the document, not the files in it
        if any(member.path.lower().endswith("vbaproject.bin") for member in archive.members):
            yield _finding("macro", part)
        return
    found = (finding for member in archive.members for finding in _look_at_member(part, member))
    yield from islice(found, MEMBERS_TOLD)


def _look_at_member(part: Part, member: Member) -> Iterator[Finding]:
    name = member.path.rpartition(" > ")[2]
    kind = kind_by_name(name) or kind_by_content(member.head)
    yield from _look_at_name(part, name)
    if kind in DANGEROUS:
        yield _finding("executable-in-archive", part, member=name, type=kind)
    elif not file_types.is_office_name(name) and (inner := archive_kind(member.head)):
        yield _finding("nested-archive", part, member=name, type=inner)
    if file_types.promises_macros(name):
        yield _finding("macro", part, name=name)


def _finding(what: str, part: Part, **facts: str) -> Finding:
    told = {"name": part.name or "without a name", "type": part.media_type, "path": part.path, **facts}
    return Finding(f"attachments.{what}", part.place, {key: value[:200] for key, value in told.items()})
