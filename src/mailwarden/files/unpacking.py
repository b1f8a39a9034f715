"""Opens the files of a message once, for every analyzer and for the lists: attachments and the files inside them.

`CONTAINERS` lists the formats that can hold files, documents included. A reader opens each container, and the files in
it are opened again, under one budget for the whole message (`Limits`). Files that cannot be opened are recorded in the
message's coverage; the readers of documents record the damage of a document itself.

Security: works on hostile files inside a killable worker; nothing is written to disk or executed.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from mailwarden.files import encoded, file_types, mails, tnef
from mailwarden.files.archive_types import ARCHIVES, STREAMS, ZIP, archive_kind, archive_kinds, unsupported_kind
from mailwarden.files.archives import read_archive, read_stream
from mailwarden.files.container import Entry, Exhausted, Opening, Reader, SeenFile
from mailwarden.files.file_types import HEAD, WEB_PAGE, is_shown, kind_by_content
from mailwarden.files.office.compound import SIGNATURE, decrypt, read_compound
from mailwarden.files.office.onenote import ONENOTE, onenote_files
from mailwarden.files.pdf.document import attached_files, is_pdf
from mailwarden.files.pdf.objects import unescape_name
from mailwarden.files.rtf import read_rtf_document
from mailwarden.files.zips import read_zip
from mailwarden.message.coverage import Coverage
from mailwarden.message.message import Part

# A PDF without any of these holds no files; names may be escaped, and objects packed or encrypted.
_PDF_MARKS = (b"EmbeddedFile", b"FileAttachment", b"ObjStm", b"/Encrypt")
_PDF_ESCAPE = re.compile(rb"#[0-9a-fA-F]{2}")
_ESCAPED_REACH = 3 * max(map(len, _PDF_MARKS))  # bytes of the longest of them, if every character is escaped
_FEW_ESCAPES = 1_000  # a PDF with more is opened without looking at each

__all__ = ["CONTAINERS", "Container", "SeenFile", "Unpacked", "files_of", "has_zip_behind", "unpack"]

_CLOSED = frozenset({"pdf", "jpeg", "png", "gif", "rtf", "bmp", "tiff", "webp", "heic", "ogg", "mp3", "media"})
_DOCUMENT_PARTS = frozenset({"[content_types].xml", "mimetype", "content.xml"})
_EMBEDDED = ".embedded"  # in the path of a file that the parser found in the text of a body
_NOT_SCANNED = frozenset({"ar", "warc", "rpm", "zstandard", "lz4", "lzip", "compress", "lzma"})
# The kind of an archive is looked up once for all of them.
_ARCHIVE_READERS: dict[str, Reader] = {
    ZIP: read_zip,
    **dict.fromkeys(STREAMS, read_stream),
    **{kind: partial(read_archive, kind) for kind in ARCHIVES},
}


def holds_files(content: bytes) -> bool:
    """Return whether a document may have files inside, by its content."""
    if content.startswith((SIGNATURE, ONENOTE)) or b"{\\rt" in content[:64]:
        return True
    return is_pdf(content) and (any(mark in content for mark in _PDF_MARKS) or _has_escaped_mark(content))


def _has_escaped_mark(content: bytes) -> bool:
    """Return whether a name with escapes may be one of the marks; the data of images has escapes by chance."""
    if b"#" not in content:
        return False
    for number, escape in enumerate(_PDF_ESCAPE.finditer(content)):
        near = unescape_name(content[max(escape.start() - _ESCAPED_REACH, 0) : escape.end() + _ESCAPED_REACH])
        if number >= _FEW_ESCAPES or any(mark in near for mark in _PDF_MARKS):
            return True
    return False


def embedded_files(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield each file inside a document, "" as the name of one without, and the plain form of an encrypted one."""
    content = file.content
    coverage = Coverage(opening.limits)  # damage is recorded by the reader of the document itself
    if content.startswith(SIGNATURE):
        found = read_compound(content, coverage)
        yield from (Entry(*package) for package in found.packages)
        if found.encrypted:
            yield from _decrypted(file, opening)
    elif content.startswith(ONENOTE):
        yield from (Entry("", stored) for stored in onenote_files(content))
    elif is_pdf(content):
        few = partial(_few_passwords, opening)
        yield from (Entry(*attached) for attached in attached_files(content, few, coverage))
    else:
        document = read_rtf_document(content, coverage)
        yield from (Entry(*package) for package in (*document.packages, *document.media))
    for missed in coverage.missed:
        if missed.limit:
            opening.coverage.beyond(missed.limit, missed.place)


def _decrypted(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    for password in opening.office_passwords(file.place):
        if plain := decrypt(file.content, password):
            yield Entry(file.name, plain, unlocked=True, password=password)
            return


def _few_passwords(opening: Opening) -> tuple[str, ...]:
    """Return the passwords to try on a PDF; each trial costs a tenth of a second, so few are tried."""
    return opening.passwords[: opening.limits.office_trials]


class Container(NamedTuple):
    """A kind of container: how it is recognised, how it is read, and whether engines open it, too."""

    kind: str
    matches: Callable[[SeenFile], bool]
    read: Reader
    scanned: bool = True


class Unpacked(Struct, frozen=True):
    """One part that is a file: its type by content, and its files if it is a container."""

    part: Part
    kind: str
    container: str = ""
    files: tuple[SeenFile, ...] = ()
    encrypted: bool = False
    unreadable: bool = False
    joined: bool = False  # a ZIP behind another, of which programs show the one or the other


def _archive_kinds(file: SeenFile) -> tuple[str, ...]:
    kinds = archive_kinds(file.name, file.content)
    # A compound file may hold a ZIP as one of its streams; its own readers open that.
    return tuple(kind for kind in kinds if kind != ZIP) if file.content.startswith(b"\xd0\xcf\x11\xe0") else kinds


def _read_unsupported(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    kind = unsupported_kind(file.name, file.content)
    opening.unsupported(file.place, f"the format {kind} cannot be opened")
    yield from ()


def _read_document(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield the files inside a document."""
    for entry in embedded_files(file, opening):
        if opening.read([entry.content], len(file.content), file.place) is not None:
            yield entry


def _read_fragment(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    opening.unsupported(file.place, "it is a fragment of a message, whose other fragments come in other messages")
    yield from ()


CONTAINERS = (
    Container("tnef", lambda file: tnef.is_tnef(file.content), tnef.read_tnef),
    Container("message", mails.is_outlook, mails.read_outlook, scanned=False),
    Container("message", mails.is_mailbox, mails.read_mailbox),
    Container("message", mails.is_mail, mails.read_mail),
    Container("signature", mails.is_cms, mails.read_cms, scanned=False),
    Container("signature", mails.is_armored_cms, mails.read_armored_cms, scanned=False),
    Container("pgp", mails.is_pgp, mails.read_pgp),
    Container("fragment", lambda file: file.media_type == "message/partial", _read_fragment),
    Container("document", lambda file: holds_files(file.content), _read_document),
    Container("unsupported", lambda file: bool(unsupported_kind(file.name, file.content)), _read_unsupported),
)
ARCHIVE_CONTAINERS = {
    kind: Container(kind, lambda file: bool(_archive_kinds(file)), reader, kind not in _NOT_SCANNED)
    for kind, reader in _ARCHIVE_READERS.items()
}
# Looked for in files that are no container of another kind.
TEXT_CONTAINERS = (
    Container("calendar", encoded.is_calendar, encoded.read_calendar, scanned=False),
    Container("uuencode", encoded.is_encoded, encoded.read_encoded, scanned=False),
    Container("base64", encoded.is_base64_file, encoded.read_base64_file, scanned=False),
)


def unpack(parts: Iterable[Part], opening: Opening) -> tuple[Unpacked, ...]:
    """Open every file of a message."""
    unpacker = _Unpacker(opening)
    return tuple(filter(None, map(unpacker.unpack, parts)))


def files_of(unpacked: Iterable[Unpacked]) -> tuple[SeenFile, ...]:
    """Return the files in one flat sequence: each attachment, then the files inside it."""
    return tuple(file for one in unpacked for file in (_attachment(one.part), *one.files))


def has_zip_behind(kind: str, content: bytes) -> bool:
    """Return whether a file that is no archive ends as a ZIP does, which other programs open."""
    return kind in _CLOSED and archive_kind(content) == ZIP


class _Unpacker:
    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._contents: dict[bytes, bytes] = {}  # the same content is kept once
        self._exhausted = False

    def unpack(self, part: Part) -> Unpacked | None:
        kind = kind_by_content(part.content[:HEAD])
        if is_shown(part) and kind in {"", WEB_PAGE} and _EMBEDDED not in part.path:
            if mails.is_pgp(_attachment(part)):
                self._opening.encrypted(part.place, "the text is encrypted by OpenPGP")
            return None  # a body: analyzers of texts and pages look at it
        if not kind and file_types.promises_kind(part.name):
            kind = file_types.ask_libmagic(part.content)
        traits = self._opening.start()
        files: list[SeenFile] = []
        try:
            if not self._exhausted:
                self._opening.admit(part.place)
                self._open(_attachment(part), 1, files)
        except Exhausted:
            self._exhausted = True
        return Unpacked(part, kind, traits.kind, tuple(files), traits.encrypted, traits.unreadable, traits.joined)

    def _open(self, file: SeenFile, depth: int, found: list[SeenFile]) -> None:
        for container in _containers_of(file):
            if depth == 1:
                self._opening.traits.kind = self._opening.traits.kind or container.kind
            if depth > self._opening.limits.container_depth:
                self._opening.coverage.beyond("container_depth", file.place)
                return
            entries, exhausted = self._entries(container, file)
            names = {entry.name.lower() for entry in entries}
            in_document = file_types.is_office_name(file.name) and bool(names & _DOCUMENT_PARTS)
            for entry in entries:
                inner = SeenFile(
                    file.part, entry.name, entry.content, True, file.place.within(entry.name),
                    entry.media_type, entry.charsets, entry.is_body, entry.is_read, in_document or file.in_document,
                    entry.joins_lines, entry.base, file.was_hidden or entry.unlocked or not container.scanned,
                    entry.password, file.content if entry.password else b"",
                )  # fmt: skip
                found.append(inner)
                if entry.is_read and entry.content and not exhausted:
                    self._open(inner, depth + 1, found)
            if exhausted:
                raise Exhausted

    def _entries(self, container: Container, file: SeenFile) -> tuple[list[Entry], bool]:
        """Return the entries of a container, each once, and whether the budget of the message ended with it."""
        entries: dict[tuple[str, bytes], Entry] = {}
        try:
            for entry in container.read(file, self._opening):
                self._opening.admit(file.place)
                content = self._contents.setdefault(entry.content, entry.content)
                entries.setdefault((entry.name, content), entry._replace(content=content))
        except Exhausted:
            return list(entries.values()), True
        except MemoryError:
            self._opening.coverage.beyond("unpacked_bytes", file.place, "there is not enough memory to open it")
        except Exception as error:  # a reader must not stop the others; the unread rest is recorded
            self._opening.damaged(file.place, f"it cannot be read as {container.kind}: {type(error).__name__}")
        return list(entries.values()), False


def _containers_of(file: SeenFile) -> list[Container]:
    """Return every way in which a file can be opened: one file can be several things to several programs."""
    if file.is_body:
        return []
    found = [container for container in CONTAINERS if container.matches(file)]
    found += (ARCHIVE_CONTAINERS[kind] for kind in _archive_kinds(file))
    return found or [container for container in TEXT_CONTAINERS if container.matches(file)]


def _attachment(part: Part) -> SeenFile:
    return SeenFile(part, part.name, part.content, False, part.place, part.media_type, part.charsets)
