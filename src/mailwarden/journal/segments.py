"""The segments of a journal on disk: appended with fsync, read in order, deleted when history has their rows.

Files are written with `pwrite` and never mapped or preallocated, so a full disk is an error of one append. All methods
block; they may be called from several threads.
"""

import errno
import fcntl
import os
import stat
import threading
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from msgspec import Struct

from mailwarden.errors import ConfigurationError
from mailwarden.journal.format import (
    HEAD_SIZE,
    Head,
    Record,
    damaged_at,
    decode_head,
    encode_head,
    encode_record,
    parse,
    require_readable,
)
from mailwarden.telemetry.logs import get_logger

SEGMENT_BYTES = 4 * 1024 * 1024
SUFFIX = ".journal"
POSITION, LOCK = "position", "lock"
DAMAGED = ".damaged"  # of a segment that has unreadable rows, beside its name
MAX_DAMAGED = 8  # such files; the oldest is deleted
BLOCK = 4096
MAX_BAD_BLOCKS = 64  # of one reading: a failing disk may take seconds for each
SENT_SECONDS = 60.0  # after which a segment without waiting rows is deleted
_FULL = (errno.ENOSPC, errno.EDQUOT)

_log = get_logger("history.journal")


class JournalFull(Exception):
    """The journal takes no more rows; the text says which limit is reached."""


class Limits(Struct, frozen=True):
    max_bytes: int
    min_free: int = 0  # bytes of the file system that stay free
    segment_bytes: int = SEGMENT_BYTES


class Chunk(Struct, frozen=True):
    """Records in order; `following` is the number to read next, `missing` the number of records that are unreadable."""

    records: tuple[Record, ...]
    following: int
    missing: int = 0


class _Segment(Struct):
    path: Path
    first: int
    size: int
    damaged: bool = False


class _Bytes(Struct, frozen=True):
    """Bytes of a file, and the offsets in it of unreadable blocks, which are zeros here."""

    data: bytes
    bad: tuple[int, ...] = ()


class Segments:
    """One journal; `next` is the number of the next record, `position` of the first that history may not have."""

    def __init__(self, folder: Path, limits: Limits, version: int) -> None:
        self._folder = folder
        self._limits = limits
        self._version = version
        self._lock = threading.Lock()
        self._segments: list[_Segment] = []
        self._lock_file = -1
        self._file = -1  # of the last segment, while it is written
        self._file_since = 0.0
        self._cursor = (-1, 0, 0)  # the first number of a segment, the number behind what was read of it, the offset
        self.next = 1
        self.position = 1
        self.torn_bytes = 0  # cut off at the start
        self.damaged_tail = 0  # rows among them that were whole once

    @classmethod
    def open(cls, folder: Path, limits: Limits, version: int) -> Self:
        """Open the journal of a folder, and cut off what a crash left behind the last whole record."""
        journal = cls(folder, limits, version)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_private(folder)
            journal._take_lock()
            journal._load()
        except OSError as error:
            raise ConfigurationError(
                f"journal.folder: {folder} cannot be used ({error.strerror}). It must be a folder that guard's user "
                "owns and may write to."
            ) from None
        return journal

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def waiting(self) -> int:
        """Return how many records history may not have."""
        return self.next - self.position

    def append(self, payloads: Sequence[bytes], milliseconds: int) -> None:
        """Write the records and wait for the disk; raise JournalFull or OSError, and then none of them is kept."""
        with self._lock:
            data = b"".join(
                encode_record(Record(number, milliseconds, payload))
                for number, payload in enumerate(payloads, self.next)
            )
            self._require_room(len(data))
            try:
                self._write(data)
            except OSError as error:
                if error.errno in _FULL:
                    raise JournalFull(f"the disk of {self._folder} is full") from None
                _log.exception("journal_write_failed", folder=str(self._folder))
                self._write(data)  # once more, to a new segment
            self.next += len(payloads)

    def read(self, number: int) -> Chunk:
        """Return the records from this number on that stand in one segment; none if there are no more."""
        with self._lock:
            if number >= self.next or not self._segments:
                return Chunk((), number)
            later = [place for place, segment in enumerate(self._segments) if segment.first > number]
            place = max(0, (later[0] if later else len(self._segments)) - 1)
            segment, size = self._segments[place], self._segments[place].size
            following = self._segments[place + 1].first if place + 1 < len(self._segments) else self.next
        start = self._cursor[2] if self._cursor[:2] == (segment.first, number) else HEAD_SIZE
        try:
            read = _read(segment.path, start, size)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EIO):  # EIO of the whole file: its blocks are read one by one
                raise  # such as too many open files: the rows are there, and the writer tries again
            _log.exception("journal_segment_unreadable", file=str(segment.path), rows=following - number)
            return Chunk((), following, following - number)
        found = parse(read.data)
        records = tuple(record for record in found.records if number <= record.number < following)
        self._cursor = (segment.first, following, size)
        missing = following - number - len(records)
        if missing:
            segment.damaged = True
            _log.error(
                "journal_damaged",
                file=str(segment.path),
                rows=missing,
                bytes=found.damaged,
                unreadable_blocks=len(read.bad),
            )
        return Chunk(records, following, missing)

    def advance(self, number: int) -> None:
        """Note that history has all records before this number, and delete the segments that hold no other."""
        with self._lock:
            self.position = max(self.position, min(number, self.next))
            try:
                _write_position(self._folder / POSITION, self.position)
            except OSError:  # after a crash some rows are sent again, which changes nothing
                _log.exception("journal_position_not_saved", folder=str(self._folder))
            while len(self._segments) > 1 and self._segments[1].first <= self.position:
                self._remove(self._segments.pop(0))
        self.tidy()

    def tidy(self) -> None:
        """Delete the last segment if history has all of it; while rows arrive it stays for some time."""
        with self._lock:
            if self.waiting or not self._segments:
                return
            if self._file >= 0 and time.monotonic() - self._file_since < SENT_SECONDS:
                return
            self._close_file()
            for segment in self._segments:
                self._remove(segment)
            self._segments.clear()

    def _remove(self, segment: _Segment) -> None:
        """Delete a segment; one with unreadable rows is kept beside the journal for some time."""
        if not segment.damaged:
            segment.path.unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):
            segment.path.rename(f"{segment.path}{DAMAGED}")
        self._limit_damaged()

    def _limit_damaged(self) -> None:
        for old in sorted(self._folder.glob(f"*{DAMAGED}"))[:-MAX_DAMAGED]:
            old.unlink(missing_ok=True)

    def close(self) -> None:
        with self._lock:
            self._close_file()
            if self._lock_file >= 0:
                os.close(self._lock_file)
                self._lock_file = -1

    def _take_lock(self) -> None:
        self._lock_file = os.open(self._folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock_file)
            raise ConfigurationError(
                f"journal.folder: {self._folder} is used by another guard. Each guard needs its own folder: set "
                "journal.folder in its guard.yml."
            ) from None

    def _load(self) -> None:
        """Read the names of the segments, check their versions and cut off a torn tail."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if not path.stem.isdigit():
                continue
            head = decode_head(_read(path, 0, HEAD_SIZE).data)
            if head is not None:
                require_readable(head, self._version, str(path))
            self._segments.append(_Segment(path, int(path.stem), path.stat().st_size))
        self.position = self.next = _read_position(self._folder / POSITION)
        if self._segments:
            self.position = max(self.position, self._segments[0].first)
            self._cut_tail()
        self.next = max(self.next, self.position)
        self.advance(self.position)

    def _cut_tail(self) -> None:
        last = self._segments[-1]
        read = _read(last.path, 0, last.size)
        found = parse(read.data, HEAD_SIZE)
        self.next = max(self.next, last.first, *(record.number + 1 for record in found.records[-1:]))
        if last.size > found.end:
            self.torn_bytes = last.size - found.end
            self._count_tail(last, read, found.end)
            _log.warning("journal_tail_cut", file=str(last.path), bytes=self.torn_bytes, damaged=self.damaged_tail)
            os.truncate(last.path, found.end)
            last.size = found.end
        if not found.records:
            last.path.unlink()
            self._segments.pop()

    def _count_tail(self, last: _Segment, read: _Bytes, end: int) -> None:
        """Count the rows of the tail that are damaged and not torn, and keep a copy of what can be read of them."""
        unreadable = any(offset + BLOCK > end for offset in read.bad)
        self.damaged_tail = max(damaged_at(read.data, end), int(unreadable))
        if not self.damaged_tail:
            return
        try:
            file = os.open(f"{last.path}{DAMAGED}", os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                _write_all(file, read.data, 0)
            finally:
                os.close(file)
            self._limit_damaged()
        except OSError:
            _log.exception("journal_damaged_rows_not_kept", file=str(last.path))

    def _require_room(self, size: int) -> None:
        if self.size + size + HEAD_SIZE > self._limits.max_bytes:
            raise JournalFull(f"journal.maxBytes ({self._limits.max_bytes:,}) is reached")
        if self._limits.min_free:
            disk = os.statvfs(self._folder)
            if disk.f_bavail * disk.f_frsize - size < self._limits.min_free:
                raise JournalFull(f"less than journal.minFreeBytes ({self._limits.min_free:,}) would stay free")

    def _write(self, data: bytes) -> None:
        """Write and sync; a failure leaves the journal as it was, and the next write uses a new segment."""
        try:
            if self._file >= 0 and self._segments[-1].size + len(data) > self._limits.segment_bytes:
                self._close_file()
            if self._file < 0:
                self._create_segment()
            segment = self._segments[-1]
            _write_all(self._file, data, segment.size)
            os.fdatasync(self._file)
            segment.size += len(data)
        except OSError:
            self._undo()
            raise

    def _create_segment(self) -> None:
        path = self._folder / f"{self.next:020d}{SUFFIX}"
        self._file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        self._file_since = time.monotonic()
        self._segments.append(_Segment(path, self.next, 0))
        head = encode_head(Head(self._version, self.next))
        _write_all(self._file, head, 0)
        self._segments[-1].size = len(head)
        _sync_folder(self._folder)

    def _undo(self) -> None:
        """Cut the last segment back to its whole records; without one it is deleted."""
        if self._file < 0:
            return
        segment = self._segments[-1]
        try:
            os.ftruncate(self._file, segment.size)
        except OSError:
            _log.exception("journal_tail_not_cut", file=str(segment.path))
        self._close_file()
        if segment.first == self.next:
            self._segments.pop()
            segment.path.unlink(missing_ok=True)

    def _close_file(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1  # the descriptor is free also after an error
            os.close(file)


def _make_private(folder: Path) -> None:
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        try:
            folder.chmod(0o700)
        except PermissionError:  # a mounted folder of another owner: its files are private
            _log.warning("journal_folder_open", folder=str(folder))


def _write_all(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _read(path: Path, start: int, end: int) -> _Bytes:
    """Read a part of a file; of unreadable blocks the others are read, since a row has a part of a block."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _Bytes(_pread(file, start, end))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return _read_blocks(file, start, end)
    finally:
        os.close(file)


def _pread(file: int, start: int, end: int) -> bytes:
    parts: list[bytes] = []
    while start < end and (part := os.pread(file, end - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _read_blocks(file: int, start: int, end: int) -> _Bytes:
    """Read block by block; after many unreadable blocks the rest counts as unreadable."""
    parts: list[bytes] = []
    bad: list[int] = []
    while start < end:
        until = min(end, start - start % BLOCK + BLOCK)
        try:
            part = _pread(file, start, until) if len(bad) < MAX_BAD_BLOCKS else None
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            part = None
        if part is None:
            bad.append(start)
        parts.append(bytes(until - start) if part is None else part)
        if part is not None and len(part) < until - start:
            break  # the file is shorter
        start = until
    return _Bytes(b"".join(parts), tuple(bad))


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _write_position(path: Path, number: int) -> None:
    """Overwrite the position in place: that needs no free space. A torn write is noticed by its checksum."""
    text = f"{number:020d}"
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        _write_all(file, f"{text} {zlib.crc32(text.encode()):08x}\n".encode(), 0)
    finally:
        os.close(file)


def _read_position(path: Path) -> int:
    """Return the stored position; without a valid one 1, so that every row on disk is sent again."""
    try:
        text, _, checksum = path.read_text("ascii", "replace").strip().partition(" ")
    except FileNotFoundError:
        return 1
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        text = checksum = ""
    if text.isdigit() and checksum == f"{zlib.crc32(text.encode()):08x}":
        return int(text)
    _log.warning("journal_position_invalid", file=str(path))
    return 1
