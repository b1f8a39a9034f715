"""ZIP archives, read as every program reads them: by the central directory, and by the headers before each file.

Archive programs disagree where a ZIP contradicts itself: Windows and 7-Zip go by the directory at its end, others by
the local headers from its beginning, and of two archives in one file some open the first and some the last. So we
take the union: every file that the directory lists, every local header that it does not list, and both readings of a
file whose two headers differ (APPNOTE.TXT 4.3).
Security: reads hostile bytes inside a killable worker; every number is checked against the archive, and
unpacked bytes are counted while they come out.
"""

import bisect
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from mailwarden.files.archive_types import ZIP_END
from mailwarden.files.archives import read_entries
from mailwarden.files.container import Entry, Opening, SeenFile
from mailwarden.message.limits import SHOWN
from mailwarden.model.place import Place

_LOCAL = struct.Struct("<4s5H3I2H")  # 4.3.7
_CENTRAL = struct.Struct("<4s6H3I5H2I")  # 4.3.12
_END = struct.Struct("<4s4H2IH")  # 4.3.16
_LOCAL_MARK, _CENTRAL_MARK, _DESCRIPTOR_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x07\x08"
_ZIP64_LOCATOR, _ZIP64_END = b"PK\x06\x07", b"PK\x06\x06"
_ENCRYPTED, _DESCRIPTOR, _UTF8 = 1, 8, 0x800
_STORED, _DEFLATED, _DEFLATED_64, _AES = 0, 8, 9, 99
_IN_ZIP64 = 0xFFFFFFFF
_CHUNK = 262_144
_EMPTY = 64  # bytes that a method may need to say that there are none
_TRIED = 3  # files on which every password is tried; the others of an archive have the same one


class Header(NamedTuple):
    """One file as a header describes it; `start` is where its local header stands, `data` where its bytes do."""

    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    start: int
    data: int
    moment: int = 0  # time and date as written, by which some encryption is checked

    @property
    def end(self) -> int:
        return self.data + self.packed


def read_zip(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield the files of a ZIP archive in every reading."""
    yield from _Zip(file, opening).entries()


class _Zip:
    def __init__(self, file: SeenFile, opening: Opening) -> None:
        self.content = file.content
        self.place = file.place
        self.opening = opening
        self._tried = 0
        self._password = ""
        self._yielded: set[tuple[str, int, int, int, int]] = set()
        self._listed_files = 0
        self._absent: set[bytes] = set()  # marks that do not follow any more

    def entries(self) -> Iterator[Entry]:
        end = self.content.rfind(ZIP_END)
        listed = list(self._listed(end)) if end >= 0 else []
        if end < 0:
            self.opening.damaged(self.place, "the ZIP archive has no directory")
        self._check_overlaps(listed)
        covered: list[tuple[int, int]] = []
        for header in listed:
            local = self._local(header.start)
            if local is None:
                self.opening.damaged(
                    self.place,
                    f"the directory of the ZIP lists {header.name[: SHOWN.word]}, which is not there",
                )
                yield Entry(header.name, is_read=False)
                continue
            yield from self._both(header._replace(data=local.data), local)
            reached = local.data + (min(header.packed, local.packed) if local.packed else header.packed)
            covered.append((local.start, reached))
        yield from self._unlisted(_Ranges(covered), end, min((start for start, _ in covered), default=end))

    def _listed(self, end: int) -> Iterator[Header]:
        """Yield the entries of the directory before the end record."""
        if end + _END.size > len(self.content):
            return
        _, _, _, _, _, size, offset, _ = _END.unpack_from(self.content, end)
        directory_end = end
        zip64 = self._zip64(end)
        if zip64 is not None:
            size, offset, directory_end = zip64
        start = directory_end - size
        if start < 0 or (size and self.content[start : start + 4] != _CENTRAL_MARK):
            # A directory that is not where the end record says: readers that repair archives search for it.
            start = offset if self.content[offset : offset + 4] == _CENTRAL_MARK else self.content.find(_CENTRAL_MARK)
            if start < 0:
                self.opening.encrypted(
                    self.place, "the directory of the ZIP archive cannot be read, it may be encrypted"
                )
                return
        shift = max(start - offset, 0)
        yield from self._directory(start, directory_end, shift)

    def _directory(self, position: int, end: int, shift: int) -> Iterator[Header]:
        while position + _CENTRAL.size <= end and self.content[position : position + 4] == _CENTRAL_MARK:
            self.opening.check_time(self.place)
            header, position = self._central(position, shift)
            if not header.name.endswith(("/", "\\")) or header.size:
                self._listed_files += 1  # a million of them would be kept in memory first
                if self._listed_files > self.opening.limits.files:
                    self.opening.exhaust("files", self.place)
                yield header

    def _central(self, position: int, shift: int) -> tuple[Header, int]:
        (_, _, _, flags, method, time, date, crc, packed, size, name_length, extra_length, comment, _, _, _, start) = (
            _CENTRAL.unpack_from(self.content, position)
        )
        at = position + _CENTRAL.size
        name = self.content[at : at + name_length]
        extra = self.content[at + name_length : at + name_length + extra_length]
        if _IN_ZIP64 in (packed, size, start):
            size, packed, start = _zip64_sizes(extra, size, packed, start)
        start += shift
        if (
            self.content[start : start + 4] != _LOCAL_MARK
            and self.content[start - shift : start - shift + 4] == _LOCAL_MARK
        ):
            start -= shift
        header = Header(_decode(name, flags, extra), flags, method, crc, packed, size, start, 0, time | date << 16)
        return header, at + name_length + extra_length + comment

    def _local(self, start: int) -> Header | None:
        if start < 0 or start + _LOCAL.size > len(self.content) or self.content[start : start + 4] != _LOCAL_MARK:
            return None
        _, _, flags, method, time, date, crc, packed, size, name_length, extra_length = _LOCAL.unpack_from(
            self.content, start
        )
        at = start + _LOCAL.size
        name = self.content[at : at + name_length]
        extra = self.content[at + name_length : at + name_length + extra_length]
        if _IN_ZIP64 in (packed, size):
            size, packed, _ = _zip64_sizes(extra, size, packed, 0)
        data = at + name_length + extra_length
        return Header(_decode(name, flags, extra), flags, method, crc, packed, size, start, data, time | date << 16)

    def _zip64(self, end: int) -> tuple[int, int, int] | None:
        """Return size, offset and end of the directory from the record of large archives (4.3.14)."""
        if self.content[end - 20 : end - 16] != _ZIP64_LOCATOR:
            return None
        at = self.content.rfind(_ZIP64_END, 0, end - 20)
        if at < 0 or at + 56 > len(self.content):
            return None
        size, offset = struct.unpack_from("<QQ", self.content, at + 40)
        return size, offset, at

    def _both(self, listed: Header, local: Header) -> Iterator[Entry]:
        """Yield a file as the directory describes it, and as its own header does where that differs."""
        yield from self._file(listed)
        own = local
        if local.flags & _DESCRIPTOR and not local.packed:  # the sizes stand behind the data
            own = local._replace(packed=listed.packed, size=listed.size, crc=listed.crc)
        if (own.method, own.packed, own.flags & _ENCRYPTED) != (
            listed.method,
            listed.packed,
            listed.flags & _ENCRYPTED,
        ) or _bare(own.name) != _bare(listed.name):
            yield from self._file(own)

    def _unlisted(self, covered: "_Ranges", end: int, first: int) -> Iterator[Entry]:
        """Yield the files whose local headers the directory does not list, outside the data of those it lists."""
        position = 0
        while (start := self.content.find(_LOCAL_MARK, position)) >= 0:
            self.opening.check_time(self.place)
            position = max(covered.reach(start), start + 4)
            header = self._local(start) if covered.reach(start) < 0 else None
            if header is None or not _is_plausible(header, len(self.content)):
                continue
            if header.flags & _DESCRIPTOR and not header.packed:
                header = header._replace(packed=self._length(header))
            if not header.name.endswith("/"):
                yield from self._file(header)
            position = max(header.end, position)
            covered.add(start, header.end)
        yield from self._other_names(covered, end, first)

    def _other_names(self, covered: "_Ranges", end: int, first: int) -> Iterator[Entry]:
        """Yield the files of another directory before the last one: programs differ on which they follow."""
        position = -4
        while 0 <= (position := self.content.find(ZIP_END, position + 4)) < end:
            self.opening.check_time(self.place)
            if covered.reach(position) >= 0:
                continue
            if position < first and self.content.startswith(_LOCAL_MARK):
                self.opening.traits.joined = True
            for header in self._listed(position):
                local = self._local(header.start)
                if local is not None:
                    yield from self._file(header._replace(data=local.data))

    def _length(self, header: Header) -> int:
        """Return how long a file is whose length stands behind it: up to the descriptor, or to the next header."""
        if header.method == _DEFLATED and not header.flags & _ENCRYPTED:
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
            position = header.data
            try:
                while position < len(self.content) and not unpacker.eof:
                    waiting = self.content[position : position + _CHUNK]
                    while waiting and not unpacker.eof:
                        self.opening.read([unpacker.decompress(waiting, _CHUNK)], len(self.content), self.place)
                        waiting = unpacker.unconsumed_tail
                    position += _CHUNK
                if unpacker.eof:
                    return min(position, len(self.content)) - len(unpacker.unused_data) - header.data
            except zlib.error:
                pass
        ends = [len(self.content)]
        for mark in {_DESCRIPTOR_MARK, _LOCAL_MARK, _CENTRAL_MARK} - self._absent:
            if (end := self.content.find(mark, header.data)) >= 0:
                ends.append(end)
            else:
                self._absent.add(mark)
        return min(ends) - header.data

    def _file(self, header: Header) -> Iterator[Entry]:
        key = (header.name, header.data, header.packed, header.method, header.flags & _ENCRYPTED)
        if key in self._yielded:
            return
        self._yielded.add(key)
        place = self.place.within(header.name)
        if header.end > len(self.content):
            self.opening.damaged(place, "the ZIP archive declares more bytes than it has")
        if header.flags & _ENCRYPTED or header.method == _AES:
            yield from self._unlock(header, place)
        elif header.method in {_STORED, _DEFLATED}:
            yield self._plain(header, place)
        elif not header.size and header.packed < _EMPTY:
            yield Entry(header.name)
        elif header.method == _DEFLATED_64:
            self.opening.unsupported(place, "it is compressed by Deflate64")
            yield Entry(header.name, is_read=False)
        else:
            yield from self._by_libarchive(header, place)

    def _plain(self, header: Header, place: Place) -> Entry:
        failed: list[str] = []
        data = self.opening.read(self._chunks(header, failed), header.packed, place)
        if data is None:
            return Entry(header.name, is_read=False)
        if failed:
            self.opening.damaged(place, failed[0])
        elif header.crc and zlib.crc32(data) != header.crc:
            self.opening.damaged(place, "the content is not what its check sum says")
        return Entry(header.name, data, is_read=bool(data) or not failed)

    def _chunks(self, header: Header, failed: list[str]) -> Iterator[bytes]:
        packed = memoryview(self.content)[header.data : header.end]
        if header.method == _STORED:
            for start in range(0, len(packed), _CHUNK * 16):
                yield bytes(packed[start : start + _CHUNK * 16])
            return
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            for start in range(0, len(packed), _CHUNK):
                waiting = bytes(packed[start : start + _CHUNK])
                while waiting and not unpacker.eof:
                    yield unpacker.decompress(waiting, _CHUNK * 16)
                    waiting = unpacker.unconsumed_tail
            while not unpacker.eof and (rest := unpacker.decompress(b"", _CHUNK * 16)):
                yield rest
        except zlib.error as error:
            failed.append(f"it cannot be unpacked: {error}"[:100])  # shown: an error of a reader
            return
        if not unpacker.eof:
            failed.append("it ends before its end")

    def _unlock(self, header: Header, place: Place) -> Iterator[Entry]:
        """Open an encrypted file by one of the passwords that the message gives."""
        self.opening.traits.encrypted = True
        passwords = self.opening.passwords if self._tried < _TRIED else ()
        if self._password:
            passwords = (self._password,)
        self._tried += 1
        alone = self._alone(header) if passwords else b""
        for password in passwords:
            entry = self._try(header, alone, place, password)
            if entry is not None:
                self._password = password
                yield entry
                return
        self.opening.encrypted(place)
        yield Entry(header.name, is_read=False)

    def _try(self, header: Header, alone: bytes, place: Place, password: str) -> Entry | None:
        with self.opening.trial() as trial:
            for entry in read_entries(alone, ("zip_seekable",), (), place, trial, password=password):
                if trial.coverage.complete and entry.is_read:
                    return Entry(header.name, entry.content, unlocked=True)
        return None

    def _by_libarchive(self, header: Header, place: Place) -> Iterator[Entry]:
        found = False
        for entry in read_entries(self._alone(header), ("zip_seekable",), (), self.place, self.opening):
            found = True
            yield entry._replace(name=header.name)
        if not found:
            self.opening.unsupported(place, f"it is compressed by method {header.method}")
            yield Entry(header.name, is_read=False)

    def _alone(self, header: Header) -> bytes:
        """Return an archive of one file, in which nothing contradicts itself."""
        name = b"a"
        extra = self._aes_extra(header)
        time, date = header.moment & 0xFFFF, header.moment >> 16
        flags = header.flags & ~_UTF8
        local = _LOCAL.pack(
            _LOCAL_MARK, 51, flags, header.method, time, date, header.crc, header.packed, header.size, 1, len(extra)
        )
        data = self.content[header.data : header.end]
        central = _CENTRAL.pack(
            _CENTRAL_MARK, 51, 51, flags, header.method, time, date, header.crc, len(data), header.size, 1,
            len(extra), 0, 0, 0, 0, 0,
        )  # fmt: skip
        body = local + name + extra + data
        directory = central + name + extra
        return body + directory + _END.pack(ZIP_END, 0, 0, 1, 1, len(directory), len(body), 0)

    def _aes_extra(self, header: Header) -> bytes:
        """Return the field that says how a file is encrypted by AES, from its local header."""
        at = header.start + _LOCAL.size
        name_length, extra_length = struct.unpack_from("<HH", self.content, header.start + 26)
        extra = self.content[at + name_length : at + name_length + extra_length]
        place = extra.find(b"\x01\x99\x07\x00")
        return extra[place : place + 11] if header.method == _AES and place >= 0 else b""

    def _check_overlaps(self, listed: list[Header]) -> None:
        """Record files that share bytes: only bombs and tricks do."""
        end = -1
        for header in sorted(listed, key=lambda each: each.start):
            if header.start < end:
                self.opening.coverage.beyond("ratio", self.place, "files of a ZIP archive overlap each other")
                return
            end = header.start + _LOCAL.size + max(header.packed, 0)


class _Ranges:
    """Ranges of the archive that belong to a file."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self._ranges = sorted(ranges)

    def add(self, start: int, end: int) -> None:
        bisect.insort(self._ranges, (start, end))

    def reach(self, position: int) -> int:
        """Return where the range ends that holds a position, or -1."""
        index = bisect.bisect_right(self._ranges, (position, 1 << 63)) - 1
        return self._ranges[index][1] if index >= 0 and position < self._ranges[index][1] else -1


def _zip64_sizes(extra: bytes, size: int, packed: int, start: int) -> tuple[int, int, int]:
    """Return the sizes of a large file from its extra field (4.5.3)."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        if kind == 1:
            field = extra[position + 4 : position + 4 + length]
            values = [int.from_bytes(field[at : at + 8], "little") for at in range(0, len(field) - 7, 8)]
            taken = [values.pop(0) if each == _IN_ZIP64 and values else each for each in (size, packed, start)]
            return taken[0], taken[1], taken[2]
        position += 4 + length
    return size, packed, start


def _decode(name: bytes, flags: int, extra: bytes) -> str:
    """Return a name as programs show it: in UTF-8 if it says so or can be, else in the charset of DOS."""
    unicode_path = extra.find(b"up")  # Info-ZIP's Unicode path, 4.6.9
    if unicode_path >= 0 and len(extra) > unicode_path + 9:
        length = int.from_bytes(extra[unicode_path + 2 : unicode_path + 4], "little")
        unicode_name = extra[unicode_path + 9 : unicode_path + 4 + length]
        if (
            extra[unicode_path + 4] == 1
            and unicode_name
            and int.from_bytes(extra[unicode_path + 5 : unicode_path + 9], "little") == zlib.crc32(name)
        ):
            return unicode_name.decode("utf-8", "replace")
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("cp437")


def _bare(name: str) -> str:
    return name.replace("\\", "/")


def _is_plausible(header: Header, length: int) -> bool:
    """Return whether this is a local header, and not only its signature by chance."""
    known = header.method in {*range(21), *range(93, 100)}
    return known and header.data <= length and bool(header.name) and "\0" not in header.name
