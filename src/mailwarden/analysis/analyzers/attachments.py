"""What the attachments are: programs and scripts, files that pretend, archives that hide, web pages.

Security: works on hostile files inside a killable worker; archives are opened under limits, nothing is executed,
written or fetched, findings are bounded and facts are cut.
"""

import base64
import re
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

from mailwarden.analysis import file_types
from mailwarden.analysis.file_types import DANGEROUS, DISK_IMAGE, WEB_PAGE, kind_by_content, kind_by_name
from mailwarden.analysis.moderation import few_of_each_kind
from mailwarden.analysis.passwords import find_passwords
from mailwarden.analysis.unpacking import Unpacked, has_zip_behind
from mailwarden.analysis.view import View
from mailwarden.message.archive_kinds import STREAMS, archive_kind
from mailwarden.message.archives import ArchiveReport, Member
from mailwarden.message.message import Part
from mailwarden.model.evidence import Finding

MEMBERS_TOLD = 10  # findings of a kind about the files of one archive; more of them say nothing new
FEW = 3  # an archive of so few files is made around one of them
TURNING = frozenset("\u202b\u202d\u202e\u2067")

_OLE_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
# Put together here, so that no file of ours holds it.
_EICAR = rb"X5O!P%@AP[4\PZX54(P^)7CC)7}$" + b"EICAR-STANDARD-" + b"ANTIVIRUS-TEST-FILE!$H+H*"

# How it looks in other writings: by hexadecimal digits, in wide characters, and in each of the three rows of base64.
_EICAR_WRITTEN = (
    _EICAR,
    _EICAR.hex().encode(),
    _EICAR.hex().upper().encode(),
    _EICAR.decode().encode("utf-16-le"),
    *(base64.b64encode(_EICAR[skip:])[:64] for skip in range(3)),
)
_TEST_BYTES = 1024 * 1024
_LOCAL_NAME = re.compile(rb"PK\x03\x04.{22}(.{2}).{2}", re.DOTALL)
_SALVAGED = 20

_GTUBE = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*" + b"GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"
_GTUBE_WRITTEN = (_GTUBE, _GTUBE.decode().encode("utf-16-le"))
_TAG = re.compile(rb"<[^<>]{0,2000}>")
_WORDS = 200 * 1024  # of a part of a document


class AttachmentsAnalyzer:
    name: ClassVar[str] = "attachments"

    def examine(self, view: View) -> Iterator[Finding]:
        locked: Part | None = None
        for one in view.unpacked:
            yield from examine_file(one)
            if _is_locked(one):
                locked = locked or one.part
        if locked and (told := find_passwords(f"{view.subject}\n{view.text}")):
            yield _finding("password-told", locked, password=told[0])


def examine_file(one: Unpacked) -> Iterator[Finding]:
    """Look at the name, then at the content, then into it."""
    part = one.part
    yield from _look_at_name(part, part.name)
    yield from _look_at_kind(part, one.kind)
    if is_test_file(part.content):
        yield _finding("test-file", part)
    if has_test_line(part.content):
        yield _finding("test-spam", part)
    if file_types.is_archaic(part.name, one.archive.kind if one.archive else ""):
        yield _finding("archaic-archive", part, type=file_types.ending_of(part.name))
    if has_zip_behind(one.kind, part.content):
        yield _finding("hidden-archive", part, type=one.kind)
    elif one.archive is not None and one.archive.kind in {"rar", "7z"} and not archive_kind(part.content):
        yield _finding("hidden-archive", part, type=one.archive.kind)
    if one.kind == "ole" and _OLE_ENCRYPTED in part.content:
        yield _finding("encrypted-archive", part, type="Office document")
    if one.archive is not None:
        yield from _look_inside(part, one.archive)


def is_test_file(content: bytes) -> bool:
    """Tell the harmless file that the makers of virus scanners agreed upon, to show that a scanner works."""
    start = content[:_TEST_BYTES]
    return any(written in start for written in _EICAR_WRITTEN)


def has_test_line(content: bytes) -> bool:
    """Tell the line that the makers of spam filters agreed upon, in plain or in wide characters."""
    start = content[:_TEST_BYTES]
    return any(written in start for written in _GTUBE_WRITTEN)


def _words_of(member: Member) -> bytes:
    """Return what a part of a document says, whose words its tags may tear."""
    content = member.content[:_WORDS]
    return _TAG.sub(b"", content) if _name_of(member).endswith(".xml") else content


def _is_locked(one: Unpacked) -> bool:
    if one.archive is not None:
        return one.archive.encrypted
    return one.kind == "ole" and _OLE_ENCRYPTED in one.part.content


def _look_at_name(part: Part, name: str) -> Iterator[Finding]:
    if not TURNING.isdisjoint(name):
        yield _finding("rtl-name", part, name=name)
    if file_types.has_double_ending(name):
        yield _finding("double-extension", part, name=name)
    if file_types.is_attack_type(name):
        yield _finding("attack-type", part, name=name, type=file_types.ending_of(name))


def _look_at_kind(part: Part, kind: str) -> Iterator[Finding]:
    """Compare what the name promises with what the content is."""
    named = kind_by_name(part.name) or file_types.kind_by_type(part.name, part.media_type)
    promised = "" if _is_named_after_a_host(part, kind) else named
    honest = file_types.keeps_promise(part.name, kind)
    if file_types.is_web_address(part.name) and kind not in DANGEROUS:
        yield _finding("web-shortcut", part)
    elif promised:
        yield _finding("executable", part, type=promised)
    elif kind in DANGEROUS:
        yield _finding("executable" if honest else "disguised-executable", part, type=kind)
    elif not honest:
        yield _finding("type-mismatch", part, type=kind)
    if kind == WEB_PAGE or file_types.ending_of(part.name) in {"htm", "html", "xhtml", "shtml"}:
        yield _finding("html-attachment", part)


def _is_named_after_a_host(part: Part, kind: str) -> bool:
    """Tell a message or document that is called after a web site from a program with the ending of old."""
    harmless = part.media_type == "message/rfc822" or (kind != "" and kind not in DANGEROUS)
    return harmless and file_types.ending_of(part.name) == "com"


def _look_inside(part: Part, archive: ArchiveReport) -> Iterator[Finding]:
    if archive.encrypted:
        yield _finding("encrypted-archive", part, type=archive.kind)
    if archive.tripped:
        yield _finding("archive-limit", part, sentence=archive.tripped[0].rstrip("."))
    if archive.unreadable and kind_by_name(part.name) != DISK_IMAGE:
        yield _finding("archive-unreadable", part, sentence=archive.unreadable[0].rstrip("."))
    if archive.joined:
        yield _finding("joined-archives", part)
    if file_types.is_office_name(part.name) and archive.unreadable:
        yield _finding("broken-document", part)
    if file_types.is_office_name(part.name) and _is_document(archive):
        yield from _look_for_tests(part, archive)  # the reader opens the document, not the files in it
        return
    if archive.kind == "zip" and archive.unreadable and not archive.members:
        yield from _look_at_salvage(part)
    if archive.kind == "iso" and not file_types.kind_by_name(part.name):
        yield _finding("executable", part, type=DISK_IMAGE)
    if archive.kind in STREAMS and any(kind_by_content(member.head) == WEB_PAGE for member in archive.members[:1]):
        yield _finding("html-attachment", part)  # packed for itself, such as .svgz, it is opened as one
    found = (finding for member in archive.members for finding in _look_at_member(part, member))
    yield from few_of_each_kind(found, MEMBERS_TOLD)
    dangerous = [member for member in archive.members if _kind_of(member) in DANGEROUS]
    if dangerous and len(archive.members) <= FEW:
        yield _finding("lone-executable", part, member=_name_of(dangerous[0]))
    shortcuts = [name for name in map(_name_of, archive.members) if file_types.is_web_address(name)]
    if shortcuts and len(archive.members) <= FEW:  # downloads have one among their files that leads to their maker
        yield _finding("web-shortcut", part, name=shortcuts[0])


def _is_document(archive: ArchiveReport) -> bool:
    """Tell a document, which says what its parts are, from an archive that is only called one."""
    names = {_name_of(member).lower() for member in archive.members}
    return not archive.members or bool(names & {"[content_types].xml", "mimetype", "content.xml"})


def _look_for_tests(part: Part, archive: ArchiveReport) -> Iterator[Finding]:
    for member in archive.members:
        if is_test_file(member.content):
            yield _finding("test-file", part, name=_name_of(member))
            return
        if has_test_line(_words_of(member)):
            yield _finding("test-spam", part)
            return


def _look_at_salvage(part: Part) -> Iterator[Finding]:
    """Look at the names in a zip whose end is cut off, which programs that mend archives still open."""
    for match in islice(_LOCAL_NAME.finditer(part.content[:_TEST_BYTES]), _SALVAGED):
        length = int.from_bytes(match[1], "little")
        name = part.content[match.end() : match.end() + min(length, 255)].decode("utf-8", "replace")
        if kind := kind_by_name(name):
            yield _finding("executable-in-archive", part, member=name, type=kind)
            yield _finding("lone-executable", part, member=name)
            return


def _look_at_member(part: Part, member: Member) -> Iterator[Finding]:
    name, kind = _name_of(member), _kind_of(member)
    yield from _look_at_name(part, name)
    if is_test_file(member.content):
        yield _finding("test-file", part, name=name)
    if has_test_line(member.content):
        yield _finding("test-spam", part, name=name)
    if kind in DANGEROUS:
        yield _finding("executable-in-archive", part, member=name, type=kind)
    elif not file_types.is_office_name(name) and (inner := archive_kind(member.head)):
        yield _finding("nested-archive", part, member=name, type=inner)


def _name_of(member: Member) -> str:
    return member.path.rpartition(" > ")[2]


def _kind_of(member: Member) -> str:
    name = _name_of(member)
    if file_types.is_web_address(name):
        return kind_by_content(member.head)
    return kind_by_name(name) or kind_by_content(member.head)


def _finding(what: str, part: Part, **facts: str) -> Finding:
    told = {"name": part.name or "without a name", "type": part.media_type, "path": part.path, **facts}
    return Finding(f"attachments.{what}", part.place, {key: value[:200] for key, value in told.items()})
