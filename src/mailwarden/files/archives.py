"""Opens archives and packed files by libarchive, in memory: RAR, 7z, CAB, ISO 9660, LHA, tar, cpio, gzip and others.

libarchive's readers are enabled one by one, by the type that our own table recognises: some of the others start
programs (lrzip, grzip, lzop) or read files from disk (mtree). For RAR, 7z and CAB archives that libarchive rejects, the
names of their files are listed: a name is enough to recognise a program and to match a list.

Security: libarchive works on hostile bytes inside a killable worker; sizes are counted while bytes come out, and
content that libarchive rejects is recorded as missed. The lists of names check every number against the archive, unpack
within bounds, and end at damage instead of raising.
"""

import bz2
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import c_char_p, c_int, c_void_p, create_string_buffer

from mailwarden.files.container import Entry, Opening, SeenFile
from mailwarden.files.file_types import ARCHIVES, STREAMS, archive_kind, names_within, skip_front
from mailwarden.message.limits import LIMITS
from mailwarden.model.place import Place

# Before the import, which would start programs to search for the library; an image has none.
os.environ.setdefault("LIBARCHIVE", "libarchive.so.13")
from libarchive import ffi
from libarchive.exception import ArchiveError

_MAX_NUMBER = 1 << 62  # not inspection: larger than any file
_AES = bytes.fromhex("06f10701")
_NAMES = b"\x11"
_LZMA, _LZMA2 = bytes.fromhex("030101"), b"\x21"
_COPY, _DEFLATE, _BZIP2 = b"\0", bytes.fromhex("040108"), bytes.fromhex("040202")


class _Cut(Exception):
    """The archive ends before it should."""


def list_names(kind: str, content: bytes) -> Iterator[str]:
    """Yield the names in the directory of an archive, without unpacking it."""
    if kind == "7z":
        return _list_7z(content)
    if kind == "cab":
        return _list_cab(content)
    if content.startswith(b"Rar!\x1a\x07\x01\x00"):
        return _list_rar5(content)
    return _list_rar4(content) if kind == "rar" else iter(())


def hides_names(kind: str, content: bytes) -> bool:
    """Return whether the directory is encrypted as well; libarchive calls such an archive damaged."""
    if kind == "7z":
        start = 32 + min(int.from_bytes(content[12:20], "little"), _MAX_NUMBER)
        return _AES in content[start:]
    if content.startswith(b"Rar!\x1a\x07\x01\x00"):
        with suppress(_Cut):
            numbers = _Numbers(content, 12)
            numbers.five()
            return numbers.five() == 4
    return kind == "rar" and content[9:10] == b"\x73" and bool(content[10] & 0x80)


class _Numbers:
    """Reads numbers of 7z and of RAR 5 from a position on."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, count: int) -> bytes:
        if count < 0 or self.position + count > len(self.data):
            raise _Cut
        self.position += count
        return self.data[self.position - count : self.position]

    def seven(self) -> int:
        """Read a number of 7z: the leading one bits of the first byte give the number of further bytes."""
        first = self.take(1)[0]
        more = 8 - (~first & 0xFF).bit_length() if first != 0xFF else 8
        low = int.from_bytes(self.take(more), "little")
        return low | (first & (0x7F >> more)) << (8 * more) if more < 8 else low

    def five(self) -> int:
        """Read a number of RAR 5: seven bits a byte, the lowest first."""
        value = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise _Cut


def _list_7z(content: bytes) -> Iterator[str]:
    start = 32 + min(int.from_bytes(content[12:20], "little"), _MAX_NUMBER)
    header = content[start : start + min(int.from_bytes(content[20:28], "little"), _MAX_NUMBER)]
    with suppress(_Cut, lzma.LZMAError, zlib.error, OSError, EOFError, ValueError, OverflowError):
        for _ in range(LIMITS.container_depth):  # a header may be packed more than once
            if header[:1] != b"\x17":
                break
            header = _unpack_header(content, header)
    return _names_7z(header)


def _names_7z(header: bytes) -> Iterator[str]:
    """Find the property with the names by its mark and its form, so that those before it need not be understood."""
    position = header.find(_NAMES)
    while position >= 0:
        with suppress(_Cut):
            numbers = _Numbers(header, position + 1)
            text = numbers.take(numbers.seven())
            if len(text) > 4 and len(text) % 2 and text[0] == 0 and text.endswith(b"\0\0"):
                yield from filter(None, text[1:].decode("utf-16-le", "replace").split("\0"))
                return
        position = header.find(_NAMES, position + 1)


def _unpack_header(content: bytes, header: bytes) -> bytes:
    """Unpack a packed header that one coder made, which is how every packer writes it."""
    numbers = _Numbers(header, 1)
    numbers.take(1)
    offset = numbers.seven()
    numbers.seven()
    numbers.take(1)
    size = numbers.seven()
    numbers.take(3)  # the end of this block, the beginning of the next, folders follow
    numbers.seven()
    numbers.take(1)
    if numbers.seven() != 1:
        raise _Cut
    flags = numbers.take(1)[0]
    coder = numbers.take(flags & 0x0F)
    properties = numbers.take(numbers.seven()) if flags & 0x20 else b""
    packed = content[32 + offset : 32 + offset + size]
    if coder == _COPY:
        return packed[: LIMITS.ratio_from]
    if coder == _DEFLATE:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, LIMITS.ratio_from)
    if coder == _BZIP2:
        return bz2.BZ2Decompressor().decompress(packed, LIMITS.ratio_from)
    decoder = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[_filter(coder, properties)])
    return decoder.decompress(packed, LIMITS.ratio_from)


def _filter(coder: bytes, properties: bytes) -> dict[str, int]:
    if coder == _LZMA2:
        return {"id": lzma.FILTER_LZMA2, "dict_size": LIMITS.ratio_from}
    if coder != _LZMA or len(properties) < 5 or properties[0] >= 225:
        raise _Cut
    rest, lc = divmod(properties[0], 9)
    pb, lp = divmod(rest, 5)
    return {"id": lzma.FILTER_LZMA1, "dict_size": LIMITS.ratio_from, "lc": lc, "lp": lp, "pb": pb}


def _list_rar5(content: bytes) -> Iterator[str]:
    numbers = _Numbers(content, 8)
    with suppress(_Cut):
        while True:
            numbers.take(4)
            size = numbers.five()
            end = numbers.position + size
            kind, flags = numbers.five(), numbers.five()
            if flags & 1:
                numbers.five()
            data = numbers.five() if flags & 2 else 0
            if kind == 4:  # everything behind is encrypted, the names too
                return
            if kind == 2:
                yield _rar5_name(numbers)
            numbers.position = end + data


def _rar5_name(numbers: _Numbers) -> str:
    flags = numbers.five()
    numbers.five()
    numbers.five()
    numbers.take((4 if flags & 2 else 0) + (4 if flags & 4 else 0))
    numbers.five()
    numbers.five()
    return numbers.take(numbers.five()).decode("utf-8", "replace")


def _list_rar4(content: bytes) -> Iterator[str]:
    position = 7
    while position + 7 <= len(content):
        kind = content[position + 2]
        flags = int.from_bytes(content[position + 3 : position + 5], "little")
        size = int.from_bytes(content[position + 5 : position + 7], "little")
        data = int.from_bytes(content[position + 7 : position + 11], "little") if flags & 0x8000 else 0
        if size < 7 or (kind == 0x73 and flags & 0x80):  # the rest is encrypted
            break
        if kind == 0x74:
            length = int.from_bytes(content[position + 26 : position + 28], "little")
            start = position + (40 if flags & 0x100 else 32)
            yield _rar4_name(content[start : start + length])
        position += size + data


def _rar4_name(field: bytes) -> str:
    """Return the name that is shown: behind the plain one another may stand in a writing of its own."""
    plain, _, wide = field.partition(b"\0")
    if len(wide) < 2:
        return plain.decode("utf-8", "replace")
    high, shown, numbers = wide[0] << 8, "", _Numbers(wide, 1)
    with suppress(_Cut):
        while True:
            flags = numbers.take(1)[0]
            for shift in (6, 4, 2, 0):
                shown += _rar4_letters(flags >> shift & 3, high, numbers, plain[len(shown) :])
    return shown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _rar4_letters(how: int, high: int, numbers: _Numbers, rest: bytes) -> str:
    """Return the next letters: one of one byte, one beside the others, one of two bytes, or some of the plain name."""
    first = numbers.take(1)[0]
    if how == 0:
        return chr(first)
    if how == 1:
        return chr(high | first)
    if how == 2:
        return chr(first | numbers.take(1)[0] << 8)
    if first & 0x80:
        shift = numbers.take(1)[0]
        return "".join(chr(high | (byte + shift & 0xFF)) for byte in rest[: (first & 0x7F) + 2])
    return rest[: first + 2].decode("latin-1")


def _list_cab(content: bytes) -> Iterator[str]:
    """Go over the entries of a cabinet: sixteen bytes each, and a name that ends with a zero."""
    position = int.from_bytes(content[16:20], "little")
    for _ in range(int.from_bytes(content[28:30], "little")):
        end = content.find(b"\0", position + 16)
        if end < 0:
            break
        yield content[position + 16 : end].decode("utf-8", "replace")
        position = end + 1


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
