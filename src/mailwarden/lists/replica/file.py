"""The replica's folder: the SQLite file, the key filter beside it, and the pointer to the current files.

A full copy is a new file. The pointer changes to it atomically; readers of the old file keep it until then. The filter
says which keys are in no list, for a fifth of the cost of a lookup. Its bits are set before the entry is written and
never cleared. After a reboot its content is uncertain, so a filter is valid for one boot; without one the file is read.
"""

import fcntl
import mmap
import os
import sqlite3
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO
from zlib import crc32

import msgspec
from msgspec import Struct

from mailwarden.lists.kinds import KINDS

FORMAT = 1
PAGE_SIZE = 4_096
MAPPED_BYTES = 0x7FFF0000
_READER_CACHE_KIB = 4_096
_WRITER_CACHE_KIB = 65_536
_WRITER_WAIT, _READER_WAIT = 10.0, 0.2  # seconds for a lock, which is held for moments
_POINTER, _FED, _DAMAGED, _LOCK = "current", "fed", "damaged", "lock"
_PREFIX = "replica-"

_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE lists (
    list_id INTEGER PRIMARY KEY,
    tenant TEXT, -- NULL: the global scope
    name TEXT NOT NULL,
    entries INTEGER NOT NULL, -- 0: the list is gone or empty
    prefixes TEXT NOT NULL, -- JSON of PrefixLengths; may name lengths that are not in use any more
    version INTEGER NOT NULL
);
CREATE INDEX lists_version ON lists (version);
CREATE TABLE comments (comment_id INTEGER PRIMARY KEY, comment TEXT NOT NULL);
-- entry is '' where the key says it; expires is in milliseconds; comment is a number of `comments`, or the text itself.
CREATE TABLE entries (
    list_id INTEGER NOT NULL,
    key BLOB NOT NULL,
    entry TEXT NOT NULL,
    expires INTEGER,
    comment NOT NULL,
    PRIMARY KEY (list_id, key, entry)
) WITHOUT ROWID;
"""

_BITS_PER_ENTRY = 16  # at least, when the field is made
_FULL = 8  # bits an entry, below which every eighth key would be looked up in vain
_LEAST, _MOST = 1 << 22, 1 << 31
_SECOND = 0x9E3779B1  # an odd number without pattern, which takes a first place to a second one
_BOOT = Path("/proc/sys/kernel/random/boot_id")

# Key, entry, expiry in milliseconds, comment.
Row = tuple[bytes, str, int | None, int | str]

_HASHES = frozenset({"hash", "sha256"})


class Pointer(Struct, frozen=True):
    """Which files count: the names of the entries and of the field of bits, and the boot that the field is good for."""

    entries: str
    filter: str = ""
    boot: str = ""


class ReplicaFolder:
    """The paths of a replica, and the files through which the processes of a host coordinate."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pointer = path / _POINTER
        self._fed = path / _FED
        self._damaged = path / _DAMAGED

    def prepare(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def mark(self) -> tuple[int, int]:
        """Return what differs once the pointer was changed; zeros where there is none."""
        try:
            pointer_status = self._pointer.stat()
        except FileNotFoundError:
            return 0, 0
        return pointer_status.st_ino, pointer_status.st_mtime_ns

    def pointer(self) -> Pointer | None:
        try:
            return msgspec.json.decode(self._pointer.read_bytes(), type=Pointer)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def point_to(self, pointer: Pointer) -> None:
        """Let these files count from now on, and remove all others."""
        fresh = self.path / f"{_POINTER}.new"
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(pointer))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._pointer)
        self._settle()
        kept = (pointer.entries, pointer.filter or pointer.entries)
        for file_path in self.path.glob(f"{_PREFIX}*"):
            if not file_path.name.startswith(kept):
                file_path.unlink(missing_ok=True)  # processes that have it open keep it

    def new_name(self) -> str:
        return f"{_PREFIX}{time.time_ns()}"

    def _settle(self) -> None:
        """Sync the new pointer to disk before the old files are removed."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def lag_seconds(self) -> float | None:
        """Return how long ago the replica was last known to be whole; None where it never was."""
        try:
            return max(0.0, time.time() - self._fed.stat().st_mtime)
        except FileNotFoundError:
            return None

    def say_fed(self, moment: float) -> None:
        self._fed.touch(0o600)
        os.utime(self._fed, (moment, moment))

    @property
    def damaged(self) -> bool:
        return self._damaged.exists()

    def say_damaged(self) -> None:
        with suppress(OSError):
            self._damaged.touch(0o600)

    def say_mended(self) -> None:
        self._damaged.unlink(missing_ok=True)


class WriterLock:
    """Held by the one process of a host that writes the replica; let go when that process ends, however it does."""

    def __init__(self, folder: ReplicaFolder) -> None:
        self._path = folder.path / _LOCK
        self._file: IO[bytes] | None = None

    def take(self) -> bool:
        if self._file is not None:
            return True
        file = self._path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def open_for_reading(path: Path) -> sqlite3.Connection:
    cache = f"PRAGMA cache_size = -{_READER_CACHE_KIB}"
    return _connect(path, "ro", cache, wait=_READER_WAIT, statements=256)


def open_for_writing(path: Path) -> sqlite3.Connection:
    cache = f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}"
    return _connect(path, "rw", cache, "PRAGMA synchronous = NORMAL", "PRAGMA secure_delete = OFF")


def create_file(path: Path) -> sqlite3.Connection:
    """Make an empty file to be filled at once: nothing of it counts before `finish_file`."""
    return _connect(
        path,
        "rwc",
        f"PRAGMA page_size = {PAGE_SIZE}",
        "PRAGMA journal_mode = OFF",
        "PRAGMA synchronous = OFF",
        "PRAGMA locking_mode = EXCLUSIVE",
        f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}",
        _TABLES,
    )


def finish_file(path: Path, connection: sqlite3.Connection) -> None:
    """Close a filled file so that it survives the host, ready for many readers and one writer."""
    connection.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())
    connection = _connect(path, "rw")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def _connect(
    path: Path, mode: str, *setup: str, wait: float = _WRITER_WAIT, statements: int = 32
) -> sqlite3.Connection:
    """Open a file and execute the scripts of its setup; a file that is no database leaves no connection open."""
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}",
        uri=True,
        timeout=wait,
        isolation_level=None,
        check_same_thread=False,  # one thread at a time, though not always the same one
        cached_statements=statements,
    )
    try:
        for script in (f"PRAGMA mmap_size = {MAPPED_BYTES}", *setup):
            connection.executescript(script)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def boot_id() -> str:
    """Return the name of this boot of the host, or nothing where the system has none."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def size_for(entries: int) -> int:
    """Return how many bits a field for so many entries has: a power of two, so that a mask finds the place."""
    return min(max(_LEAST, 1 << (entries * _BITS_PER_ENTRY - 1).bit_length()), _MOST)


class ReplicaFilter:
    """The field in one file."""

    def __init__(self, path: Path, *, writing: bool = False) -> None:
        access = mmap.ACCESS_WRITE if writing else mmap.ACCESS_READ
        with path.open("r+b" if writing else "rb") as file:
            if writing:
                _reserve(file.fileno())
            self._bits = mmap.mmap(file.fileno(), 0, access=access)
        self._mask = len(self._bits) * 8 - 1

    @classmethod
    def create(cls, path: Path, bits: int) -> "ReplicaFilter":
        try:
            with path.open("wb") as file:
                os.truncate(file.fileno(), bits // 8)
            return cls(path, writing=True)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def is_too_small_for(self, entries: int) -> bool:
        return self._mask + 1 < min(entries * _FULL, _MOST)

    def add(self, list_id: int, keys: Iterable[bytes]) -> None:
        bits, mask = self._bits, self._mask
        for key in keys:
            place = crc32(key, list_id)
            bits[(place & mask) >> 3] |= 1 << (place & 7)
            place = place * _SECOND >> 7
            bits[(place & mask) >> 3] |= 1 << (place & 7)

    def possible(self, list_id: int, keys: Iterable[bytes]) -> list[bytes]:
        """Return those of the keys that may be in the list."""
        bits, mask = self._bits, self._mask
        return [
            key
            for key in keys
            if bits[((place := crc32(key, list_id)) & mask) >> 3] >> (place & 7) & 1
            and bits[((place := place * _SECOND >> 7) & mask) >> 3] >> (place & 7) & 1
        ]

    def close(self) -> None:
        self._bits.close()


def _reserve(file: int) -> None:
    """Reserve the space of the whole file: on a full disk, the first write to a mapped page ends the process (SIGBUS).

    On a file system that cannot reserve space, the C library writes the file instead.
    """
    os.posix_fallocate(file, 0, os.fstat(file).st_size)


def is_plain(kind_name: str) -> bool:
    """Return whether the entry itself is the key, as for most kinds."""
    return kind_name not in _HASHES and kind_name != "person"


def place_of(kind_name: str, entry: str) -> tuple[bytes, str]:
    """Return the key under which an entry lies and the entry, which is empty where the key says it already."""
    if kind_name in _HASHES:
        return bytes.fromhex(entry), ""
    key = KINDS[kind_name].key(entry)
    return key.encode(), "" if key == entry else entry


def entry_at(kind_name: str, key: bytes, entry: str) -> str:
    """Return the entry that lies at a place."""
    return entry or (key.hex() if kind_name in _HASHES else key.decode())


def lookup_keys(kind_name: str, candidates: Iterable[str]) -> list[bytes]:
    """Return the keys of candidates in their order, each once, without those under which nothing can lie."""
    try:
        if kind_name in _HASHES:
            return [bytes.fromhex(candidate) for candidate in dict.fromkeys(candidates)]
        return [candidate.encode() for candidate in dict.fromkeys(candidates)]
    except (UnicodeEncodeError, ValueError):
        return [key for candidate in candidates for key in _whole(kind_name, candidate)]


def _whole(kind_name: str, candidate: str) -> list[bytes]:
    """Return the key of one candidate; half a surrogate pair, or half a hash, has none."""
    try:
        return [bytes.fromhex(candidate) if kind_name in _HASHES else candidate.encode()]
    except (UnicodeEncodeError, ValueError):
        return []
