"""The file of rejected rows, to which guard appends and from which `mailwarden history resend` takes them.

Both take a lock for each step, so that no row is appended to a file that the other has renamed or deleted.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from msgspec import Raw, Struct

REJECTED = "rejected.jsonl"
MAX_REJECTED = 64 * 1024 * 1024  # bytes put aside
LOCK = "rejected.lock"
LOCK_SECONDS = 5.0  # its holders rename a file or append to one


class PutAside(Struct, frozen=True):
    """A rejected row, as a line of `rejected.jsonl`."""

    moment: datetime
    number: int
    reason: str
    record: Raw


@contextmanager
def locked(folder: Path, name: str = LOCK, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold a lock of the folder; raise TimeoutError, which is an OSError, if another process keeps it."""
    file = os.open(folder / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + seconds
        while not _is_taken(file):
            if time.monotonic() >= end:
                raise TimeoutError(errno.ETIMEDOUT, "another process keeps it locked", str(folder / name))
            time.sleep(0.02)
        yield
    finally:
        os.close(file)


def _is_taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def append_lines(path: Path, data: bytes) -> None:
    """Append whole lines to a file that only its owner can read, and sync it: all of them, or none after an OSError."""
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            data = b"\n" + data  # a crash left part of a line: it must not damage the next one
        try:
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, size)
            raise
    finally:
        os.close(file)
