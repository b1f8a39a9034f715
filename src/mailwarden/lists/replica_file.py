"""The replica's folder: the file with the entries, the field of bits beside it, and the pointer that says which count.

A whole copy is a new file; the pointer changes to it at one moment, and whoever reads the old one reads on until then.
"""

import fcntl
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

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


class Pointer(Struct, frozen=True):
    """Which files count: the names of the entries and of the field of bits, and the boot that the field is good for."""

    entries: str
    filter: str = ""
    boot: str = ""


class ReplicaFolder:
    """The paths of a replica, and what is said through them between the processes of a host."""

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
            found = self._pointer.stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_ino, found.st_mtime_ns

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
                file_path.unlink(missing_ok=True)  # whoever has it open keeps it

    def new_name(self) -> str:
        return f"{_PREFIX}{time.time_ns()}"

    def _settle(self) -> None:
        """Wait until the new pointer survives the host: what it pointed to before is about to go."""
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
    connection = _connect(path, "ro", wait=_READER_WAIT, statements=256)
    connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
    return connection


def open_for_writing(path: Path) -> sqlite3.Connection:
    connection = _connect(path, "rw")
    connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA secure_delete = OFF")
    return connection


def create_file(path: Path) -> sqlite3.Connection:
    """Make an empty file to be filled at once: nothing of it counts before `finish_file`."""
    connection = _connect(path, "rwc")
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
    connection.executescript(_TABLES)
    return connection


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


def _connect(path: Path, mode: str, *, wait: float = _WRITER_WAIT, statements: int = 32) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}",
        uri=True,
        timeout=wait,
        isolation_level=None,
        check_same_thread=False,  # one thread at a time, though not always the same one
        cached_statements=statements,
    )
    connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
    return connection
