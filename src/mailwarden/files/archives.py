"""Opens archives and packed files by libarchive, in memory: RAR, 7z, CAB, ISO 9660, LHA, tar, cpio, gzip and others.

libarchive's readers are enabled one by one, by the type that our own table recognises: some of the others start
programs (lrzip, grzip, lzop) or read files from disk (mtree). Of RAR, 7z and CAB archives that libarchive rejects,
`archive_names` lists the files.

Security: libarchive works on hostile bytes inside a killable worker; sizes are counted while bytes come out, and
content that libarchive rejects is recorded as missed.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_void_p, create_string_buffer

from mailwarden.files.archive_names import hides_names, list_names
from mailwarden.files.archive_types import ARCHIVES, STREAMS, archive_kind, names_within, skip_front
from mailwarden.files.container import Entry, Opening, SeenFile
from mailwarden.model.place import Place

# Before the import, which would start programs to search for the library; an image has none.
os.environ.setdefault("LIBARCHIVE", "libarchive.so.13")
from libarchive import ffi
from libarchive.exception import ArchiveError

_CHUNK = 262_144
_REGULAR, _KINDS = 0o100000, 0o170000
_FATAL = -30
_LAYERS = 25  # not inspection: as many as libarchive unpacks at once
_GZIP_HEADER = 131_072  # not inspection: beyond the largest header of a gzip file, of which the name is read
_set_options = ffi.ffi("read_set_options", [c_void_p, c_char_p], c_int)
_is_encrypted = ffi.ffi("entry_is_encrypted", [c_void_p], c_int)
_has_encrypted = ffi.ffi("read_has_encrypted_entries", [c_void_p], c_int)
# Programs differ on the directory of a disc that they show: Windows the Joliet names, others those of Rock Ridge.
# Of archives that stand one behind the other some programs show the first, and some show all.
_READINGS = {"iso": (b"!rockridge", b"!joliet"), "tar": (b"read_concatenated_archives",)}
_UNSUPPORTED_WORDS = ("unsupported", "not supported", "unknown", "can't decompress", "unrecognized")


def read_archive(kind: str, file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield the files of an archive."""
    content = file.content if kind == "iso" else skip_front(file.name, file.content)
    filters = ("rpm", "gzip", "bzip2", "xz", "zstd", "lzma") if kind == "rpm" else ()
    seen: set[str] = set()
    unread = opening.unread
    for options in _READINGS.get(kind, (b"",)):
        for entry in read_entries(content, ARCHIVES[kind], filters, file.place, opening, options=options):
            seen.add(entry.name)
            yield entry
    if opening.unread == unread and not seen and content.strip(b"\0")[1_024:]:
        opening.damaged(file.place, f"the {kind} archive shows no files")
    if opening.unread > unread:
        if hides_names(kind, content):
            opening.encrypted(file.place)
        yield from (Entry(name, is_read=False) for name in list_names(kind, content) if name not in seen)


def read_stream(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield the one file that is packed by itself, under the name that programs give it."""
    kind = archive_kind(file.content)
    names = names_within(file.name)
    for entry in read_entries(file.content, ("raw",), (STREAMS[kind],), file.place, opening):
        if entry.content == file.content:
            opening.damaged(file.place, f"it cannot be unpacked as {kind}")
            return
        inner_names = _names_in_gzip(file.content) if kind == "gzip" else ()
        for name in dict.fromkeys((*names, *inner_names)):
            yield entry._replace(name=name)


def read_entries(
    content: bytes,
    formats: tuple[str, ...],
    filters: tuple[str, ...],
    place: Place,
    opening: Opening,
    *,
    options: bytes = b"",
    password: str = "",
) -> Iterator[Entry]:
    """Yield the entries that libarchive reads, and record those that it rejects."""
    with _archive() as archive:
        try:
            for name in formats:
                ffi.get_read_format_function(name)(archive)
            for name in filters:
                ffi.get_read_filter_function(name)(archive)
            if options:
                _set_options(archive, options)
            if password:
                ffi.read_add_passphrase(archive, password.encode())
            ffi.read_open_memory(archive, content, len(content))
        except (ArchiveError, ValueError) as error:
            _record(error, place, opening)
            return
        yield from _entries(archive, len(content), place, opening, unlocks=bool(password))


def _entries(archive: int, packed: int, place: Place, opening: Opening, *, unlocks: bool) -> Iterator[Entry]:
    buffer = create_string_buffer(_CHUNK)
    total = 0
    while True:
        entry = ffi.entry_new()
        try:
            try:
                if ffi.read_next_header2(archive, entry) == ffi.ARCHIVE_EOF:
                    break
            except ArchiveError as error:
                _record(error, place, opening, encrypted=_has_encrypted(archive) > 0)
                opening.check_time(place)
                if error.retcode == _FATAL or error.retcode is None:
                    break
                continue
            if ffi.entry_filetype(entry) & _KINDS not in {_REGULAR, 0}:
                continue
            name = _name_of(entry)
            inside = place.within(name)
            encrypted = _is_encrypted(entry) > 0
            if encrypted and not unlocks:  # of some formats libarchive would return the encrypted bytes
                opening.encrypted(inside)
                yield Entry(name, is_read=False)
                continue
            failed: list[ArchiveError] = []
            data = opening.read(
                _chunks(archive, buffer, failed), max(packed - total // opening.limits.ratio, 1), inside
            )
            if failed:
                _record(failed[0], inside, opening, encrypted=encrypted)
            if data and ffi.entry_size_is_set(entry) and not data[ffi.entry_size(entry) :].strip(b"\0"):
                data = data[: ffi.entry_size(entry)]  # the XAR reader appends zeros
            total += len(data or b"")
            yield Entry(name, data or b"", is_read=data is not None and (not failed or bool(data)))
            if failed and failed[0].retcode == _FATAL:
                break
        finally:
            ffi.entry_free(entry)


def _chunks(archive: int, buffer: object, failed: list[ArchiveError]) -> Iterator[bytes]:
    """Yield the content of the current entry; an error ends it and is kept for the caller."""
    try:
        while size := ffi.read_data(archive, buffer, _CHUNK):
            if size < 0:  # a warning, such as a wrong check sum
                failed.append(ArchiveError("the content is not what its check sum says", retcode=size))
                return
            yield buffer.raw[:size]  # type: ignore[attr-defined]  # ctypes names no type for a buffer
    except ArchiveError as error:
        failed.append(error)


def _name_of(entry: int) -> str:
    try:
        name = ffi.entry_pathname_w(entry)
    except ValueError:  # a character beyond Unicode
        name = None
    if name is None:
        raw = ffi.entry_pathname(entry) or b""
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            name = raw.decode("latin-1")
    return str(name).encode("utf-8", "replace").decode()


def _record(error: Exception, place: Place, opening: Opening, *, encrypted: bool = False) -> None:
    message = str(getattr(error, "msg", None) or error)
    lower = message.lower()
    if encrypted or "encrypt" in lower or "passphrase" in lower:
        opening.encrypted(place)
    elif any(word in lower for word in _UNSUPPORTED_WORDS):
        opening.unsupported(place, f"the archive reader reports: {message[:100]}")  # shown: an error of a reader
    else:
        opening.damaged(place, f"the archive reader reports: {message[:100]}")  # shown: an error of a reader


def _names_in_gzip(content: bytes) -> Iterator[str]:
    """Yield the names in the headers of a gzip file and of those inside it, which libarchive unpacks at once."""
    for _ in range(_LAYERS):
        if not content.startswith(b"\x1f\x8b"):
            return
        if name := _name_in_gzip(content):
            yield name
        try:
            content = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(content, _GZIP_HEADER)
        except zlib.error:
            return


def _name_in_gzip(content: bytes) -> str:
    """Return the name in the header of a gzip file (RFC 1952 2.3), which some programs show."""
    if len(content) < 12 or not content[3] & 8:
        return ""
    start = 10
    if content[3] & 4:
        start += 2 + int.from_bytes(content[10:12], "little")
    end = content.find(b"\0", start)
    return content[start:end].decode("latin-1") if end > start else ""


@contextmanager
def _archive() -> Iterator[int]:
    archive = ffi.read_new()
    try:
        yield archive
    finally:
        ffi.read_free(archive)
