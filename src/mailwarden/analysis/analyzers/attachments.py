"""Reports dangerous attachments: programs, scripts, false file types, archives with hidden content, web pages.

Security: works on hostile files inside a killable worker; archives are opened under limits, nothing is executed,
written or fetched, findings are bounded and facts are cut.
"""

import base64
import re
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.analyzer import limit_each_kind
from mailwarden.analysis.text.extraction import find_passwords
from mailwarden.analysis.view import View
from mailwarden.files import file_types
from mailwarden.files.archive_types import ARCHIVES, STREAMS, archive_kind, unsupported_kind
from mailwarden.files.file_types import DANGEROUS, DISK_IMAGE, HEAD, WEB_PAGE, kind_by_content, kind_by_name
from mailwarden.files.unpacking import SeenFile, Unpacked, has_zip_behind
from mailwarden.message.file_names import ending_of
from mailwarden.message.limits import SHOWN
from mailwarden.message.literal_set import Marks
from mailwarden.message.message import Part
from mailwarden.model.evidence import Finding, Omitted

MEMBERS_REPORTED = 10  # findings of a kind about the files of one archive
FEW = 3  # an archive of so few files is made around one of them
TURNING = frozenset("\u202b\u202d\u202e\u2067")

_OLE_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
# Joined here, so that no scanner finds it in our own files.
_EICAR = rb"X5O!P%@AP[4\PZX54(P^)7CC)7}$" + b"EICAR-STANDARD-" + b"ANTIVIRUS-TEST-FILE!$H+H*"

# The same in hexadecimal, in UTF-16, and in the three alignments of base64.
_EICAR_WRITTEN = Marks(
    (
        _EICAR,
        _EICAR.hex().encode(),
        _EICAR.hex().upper().encode(),
        _EICAR.decode().encode("utf-16-le"),
        *(base64.b64encode(_EICAR[skip:])[:64] for skip in range(3)),
    )
)

_GTUBE = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*" + b"GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"
_GTUBE_WRITTEN = Marks((_GTUBE, _GTUBE.decode().encode("utf-16-le")))
_TAG = re.compile(rb"<[^<>]{0,2000}>")


class AttachmentsAnalyzer:
    name: ClassVar[str] = "attachments"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        locked: Part | None = None
        for one in view.unpacked:
            yield from examine_file(one)
            if _is_locked(one):
                locked = locked or one.part
        if locked and (given := find_passwords(f"{view.subject}\n{view.text}")):
            yield _finding("password-in-message", locked, password=given[0])


def examine_file(one: Unpacked) -> Iterator[Finding | Omitted]:
    """Examine the name, then the content, then the files inside."""
    part = one.part
    yield from _look_at_name(part, part.name)
    yield from _look_at_kind(part, one.kind)
    if is_test_file(part.content):
        yield _finding("eicar", part)
    if has_test_line(part.content):
        yield _finding("gtube", part)
    if file_types.is_archaic(part.name, one.container or unsupported_kind(part.name, part.content)):
        yield _finding("obsolete-archive", part, type=ending_of(part.name))
    if has_zip_behind(one.kind, part.content):
        yield _finding("appended-archive", part, type=one.kind)
    elif one.container in ARCHIVES and not archive_kind(part.content):
        yield _finding("appended-archive", part, type=one.container)
    if one.kind == "ole" and _OLE_ENCRYPTED in part.content:
        yield _finding("encrypted-archive", part, type="Office document")
    if one.container:
        yield from _look_inside(one)


def is_test_file(content: bytes) -> bool:
    """Return whether this is the EICAR test file."""
    return _EICAR_WRITTEN.occur_in(content)


def has_test_line(content: bytes) -> bool:
    """Return whether the text has the GTUBE test line, in ASCII or in UTF-16."""
    return _GTUBE_WRITTEN.occur_in(content)


def _words_of(file: SeenFile) -> bytes:
    """Return the text of a part of a document without its tags, which may split words."""
    return _TAG.sub(b"", file.content) if file.name.endswith(".xml") else file.content


def _is_locked(one: Unpacked) -> bool:
    return one.encrypted or (one.kind == "ole" and _OLE_ENCRYPTED in one.part.content)


def _look_at_name(part: Part, name: str) -> Iterator[Finding]:
    if not TURNING.isdisjoint(name):
        yield _finding("rtl-override", part, name=name)
    if file_types.has_double_ending(name):
        yield _finding("double-extension", part, name=name)
    if file_types.is_attack_type(name):
        yield _finding("dangerous-type", part, name=name, type=ending_of(name))


def _look_at_kind(part: Part, kind: str) -> Iterator[Finding]:
    """Compare the type that the name promises with the type of the content."""
    named = kind_by_name(part.name) or file_types.kind_by_type(part.name, part.media_type)
    promised = "" if _is_named_after_a_host(part, kind) else named
    honest = file_types.keeps_promise(part.name, kind)
    if file_types.is_web_address(part.name) and kind not in DANGEROUS:
        yield _finding("internet-shortcut", part)
    elif promised:
        yield _finding("executable", part, type=promised)
    elif kind in DANGEROUS:
        yield _finding("executable" if honest else "executable-type-mismatch", part, type=kind)
    elif not honest:
        yield _finding("type-mismatch", part, type=kind)
    if kind == WEB_PAGE or ending_of(part.name) in {"htm", "html", "xhtml", "shtml"}:
        yield _finding("html-attachment", part)


def _is_named_after_a_host(part: Part, kind: str) -> bool:
    """Return whether a file with the ending .com is a message or document named after a web site, not a program."""
    harmless = part.media_type == "message/rfc822" or (kind != "" and kind not in DANGEROUS)
    return harmless and ending_of(part.name) == "com"


def _look_inside(one: Unpacked) -> Iterator[Finding | Omitted]:
    part = one.part
    if one.encrypted:
        yield _finding("encrypted-archive", part, type=one.container)
    if one.joined:
        yield _finding("concatenated-archives", part)
    if file_types.is_office_name(part.name) and one.unreadable:
        yield _finding("damaged-document", part)
    if one.container == "iso" and not file_types.kind_by_name(part.name):
        yield _finding("executable", part, type=DISK_IMAGE)
    if one.container in STREAMS and any(kind_by_content(file.content[:HEAD]) == WEB_PAGE for file in one.files[:1]):
        yield _finding("html-attachment", part)  # a single packed file, such as .svgz, is opened like the file itself
    found = (finding for file in one.files for finding in _look_at_inner(part, file))
    yield from limit_each_kind(found, MEMBERS_REPORTED, part.place)
    files = [file for file in one.files if not file.in_document]
    if len({file.content or file.name for file in files}) > FEW:
        return
    dangerous = next((file for file in files if _kind_of(file) in DANGEROUS), None)
    if dangerous is not None:
        yield _finding("archived-executable", part, member=dangerous.name)
    shortcut = next((file.name for file in files if file_types.is_web_address(file.name)), "")
    if shortcut:  # downloads often contain a link to their publisher
        yield _finding("internet-shortcut", part, name=shortcut)


def _look_at_inner(part: Part, file: SeenFile) -> Iterator[Finding]:
    if is_test_file(file.content):
        yield _finding("eicar", part, name=file.name)
    if has_test_line(_words_of(file) if file.in_document else file.content):
        yield _finding("gtube", part, name=file.name)
    if file.in_document or file.is_body:
        return  # a document is opened by its own program, which does not run the files in it
    yield from _look_at_name(part, file.name)
    kind = _kind_of(file)
    if kind in DANGEROUS:
        yield _finding("executable-in-archive", part, member=file.name, type=kind)
    elif not file_types.is_office_name(file.name) and (inner := archive_kind(file.content)):
        yield _finding("nested-archive", part, member=file.name, type=inner)


def _kind_of(file: SeenFile) -> str:
    if file_types.is_web_address(file.name):
        return kind_by_content(file.content[:HEAD])
    return kind_by_name(file.name) or kind_by_content(file.content[:HEAD])


def _finding(what: str, part: Part, **facts: str) -> Finding:
    all_facts = {"name": part.name or "without a name", "type": part.media_type, "path": part.path, **facts}
    return Finding(f"attachments.{what}", part.place, {key: value[: SHOWN.fact] for key, value in all_facts.items()})
