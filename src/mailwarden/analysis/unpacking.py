"""The files of a message, opened once for every analyzer: attachments, what archives hold, and messages inside.

Security: works on hostile files inside a killable worker; archives are opened under limits, nothing is written, and
what is kept of their contents is bounded over the whole message.
"""

import hashlib
import io
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.analysis import file_types
from mailwarden.analysis.bodies import is_shown
from mailwarden.analysis.file_types import HEAD, WEB_PAGE, ending_of, kind_by_content
from mailwarden.analysis.passwords import find_passwords
from mailwarden.analysis.wrapped_files import unwrap, wrapping_of
from mailwarden.message.archive_kinds import archive_kind, drop_front
from mailwarden.message.archives import ArchiveReport, Member, open_archive
from mailwarden.message.message import Part
from mailwarden.message.parser import parse_message
from mailwarden.message.structure import check_structure

MAX_KEPT = 64 * 1024 * 1024  # of the contents of all archives together
MAX_MAIL = 8 * 1024 * 1024  # of an attached message that is not declared as one
_MAX_INNER = 50
_MAX_INNER_ARCHIVES = 5
_PAGE = "text.html"  # what the body of an attached message is called

_CLOSED = frozenset({"pdf", "jpeg", "png", "gif", "ole", "rtf", "bmp", "tiff", "webp", "heic", "ogg", "mp3", "media"})
_MAILS = frozenset({"eml", "mht", "mhtml"})  # a saved page is written as a message is
_EMBEDDED = ".embedded"  # in the path of a file that the parser found in the text of a body
_MAIL_STREAM = "__substg1.0_3701"  # the content of an attachment in a message that Outlook saved
_NAME_STREAMS = ("__substg1.0_3707001F", "__substg1.0_3704001F", "__substg1.0_3707001E", "__substg1.0_3704001E")


class Unpacked(Struct, frozen=True):
    """One part that is a file: what it is by its content, and what it holds where it is an archive."""

    part: Part
    kind: str
    archive: ArchiveReport | None = None


class SeenFile(Struct, frozen=True):
    """One file of the message: an attachment, or a file inside of one at any depth."""

    part: Part  # the MIME part that it came in
    name: str
    content: bytes
    inside: bool = False
    place: str = ""  # such as `part 2 (a.zip) > b.rar > c.htm`
    media_type: str = ""  # as declared by the message that holds it, "" where nothing declares it
    charset: str = ""
    is_body: bool = False  # the shown text of a message inside, such as the HTML body of an attached .eml
    is_read: bool = True  # False: only its name is known, because the content is encrypted or unreadable


def unpack(parts: Iterable[Part], text: str) -> tuple[Unpacked, ...]:
    """Open every file; `text` is what the message says, where a password may be told."""
    opened: list[Unpacked] = []
    passwords: tuple[str, ...] | None = None
    room = MAX_KEPT
    for part in parts:
        kind = kind_by_content(part.content[:HEAD])
        if is_shown(part) and kind in {"", WEB_PAGE} and _EMBEDDED not in part.path:
            continue  # a body; what it says is for other analyzers
        if not kind and file_types.promises_kind(part.name):
            kind = file_types.ask_libmagic(part.content)
        archive = _open(part, kind, ())
        if archive is not None and archive.encrypted:
            passwords = find_passwords(text) if passwords is None else passwords
            archive = _open(part, kind, passwords) if passwords else archive
        if archive is not None:
            archive, room = _bound(archive, room)
        opened.append(Unpacked(part, kind, archive))
    return tuple(opened)


def files_of(unpacked: Iterable[Unpacked]) -> tuple[SeenFile, ...]:
    """Return the files in one flat sequence: each attachment, then the files inside of it."""
    return tuple(file for one in unpacked for file in _files(one))


def _files(one: Unpacked) -> Iterator[SeenFile]:
    part = one.part
    yield SeenFile(part, part.name, part.content, False, part.place, part.media_type, part.charset)
    for member in one.archive.members if one.archive else ():
        _, _, path = member.path.partition(" > ")
        name, place = path.rpartition(" > ")[2], f"{part.place} > {path}"
        is_body = one.archive is not None and one.archive.kind == "message" and name == _PAGE
        yield SeenFile(part, name, member.content, True, place, is_body=is_body, is_read=bool(member.sha256))


def _open(part: Part, kind: str, passwords: tuple[str, ...]) -> ArchiveReport | None:
    if ending_of(part.name) in _MAILS and part.media_type != "message/rfc822":
        return _with_archives(_open_message(part))
    if kind == "ole" and ending_of(part.name) in {"msg", "oft"}:
        return _with_archives(_open_saved_message(part))
    if not kind and (wrapping := wrapping_of(part.content)):
        inner = unwrap(part.content)
        return _with_archives(ArchiveReport(wrapping, tuple(_member(part, name, content) for name, content in inner)))
    may_hold_files = kind not in _CLOSED or file_types.is_archive_name(part.name) or has_zip_behind(kind, part.content)
    if may_hold_files and archive_kind(drop_front(part.name, part.content)):
        return open_archive(part.name, part.content, passwords=passwords)
    return None


def has_zip_behind(kind: str, content: bytes) -> bool:
    """Tell whether a file that is no archive ends as a zip does, which other programs open."""
    return kind in _CLOSED and kind != "ole" and archive_kind(content) == "zip"


def _with_archives(report: ArchiveReport | None) -> ArchiveReport | None:
    """Open the archives that a wrapping or a message holds; documents are looked at as they are."""
    held = report.members if report else ()
    archives = (each for each in held if not file_types.is_office_name(each.path) and archive_kind(each.content))
    for member in islice(archives, _MAX_INNER_ARCHIVES):
        if report and not report.tripped:
            inner = open_archive(member.path, member.content)
            report = ArchiveReport(
                report.kind,
                (*report.members, *inner.members),
                report.encrypted or inner.encrypted,
                (*report.tripped, *inner.tripped),
                (*report.unreadable, *inner.unreadable),
                report.joined or inner.joined,
            )
    return report


def _bound(archive: ArchiveReport, room: int) -> tuple[ArchiveReport, int]:
    """Drop the contents for which there is no more room; names, sizes and beginnings stay."""
    kept: list[Member] = []
    for member in archive.members:
        fits = len(member.content) <= room
        room -= len(member.content) if fits else 0
        kept.append(member if fits else replace(member, content=b""))
    return replace(archive, members=tuple(kept)), room


def _open_message(part: Part) -> ArchiveReport | None:
    """Look into a message that is attached as an ordinary file."""
    if len(part.content) > MAX_MAIL:
        return None
    report = check_structure(part.content)
    if report.tripped:
        return ArchiveReport("message", tripped=tuple(trip.sentence for trip in report.tripped[:1]))
    inner = [
        (_PAGE if is_shown(each) else each.name, each.content)
        for each in parse_message(part.content, report=report).parts
        if not is_shown(each) or each.media_type == "text/html"
    ]
    return ArchiveReport("message", tuple(_member(part, name, content) for name, content in inner[:_MAX_INNER]))


def _open_saved_message(part: Part) -> ArchiveReport | None:
    """Look into a message that Outlook saved: a compound file with a folder for each attachment."""
    import olefile  # noqa: PLC0415 - dear to import, and few messages need it

    members: list[Member] = []
    try:
        with olefile.OleFileIO(io.BytesIO(part.content)) as ole:
            for path in ole.listdir()[:5_000]:
                if not path[-1].startswith(_MAIL_STREAM) or len(members) >= _MAX_INNER:
                    continue
                names = (
                    ole.openstream([*path[:-1], n]).read(1_000) for n in _NAME_STREAMS if ole.exists([*path[:-1], n])
                )
                name = next(names, b"").decode("utf-16-le", "replace").rstrip("\0")
                members.append(_member(part, name, ole.openstream(path).read(MAX_MAIL)))
    except Exception:  # a broken compound file raises whatever it likes; what was read is looked at
        return ArchiveReport("message", tuple(members), unreadable=("The saved message is damaged.",))
    return ArchiveReport("message", tuple(members))


def _member(part: Part, name: str, content: bytes) -> Member:
    digest = hashlib.sha256(content).hexdigest()
    return Member(f"{part.name} > {name[:255]}", len(content), head=content[:8_192], sha256=digest, content=content)
