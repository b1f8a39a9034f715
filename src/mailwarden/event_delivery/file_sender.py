"""Appends events to a file of abby's events folder, one JSON document a line (NDJSON).

A log rotation may move or remove the file at any time: each batch goes to the file that has the name now. A batch is
written with one call and synchronised to the disk before it counts as delivered. Each file has its own thread, which
also closes it: never while it is written, and a slow disk holds no thread of others.
"""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mailwarden.errors import SchemaViolation
from mailwarden.event_delivery.http_client import DeliveryFailed

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}\.(?:ndjson|jsonl|log)")
MODE = 0o640


def checked_name(name: str) -> str:
    """Return the name of a file inside of the events folder, or raise SchemaViolation."""
    if not _NAME.fullmatch(name):
        raise SchemaViolation(
            "The file is a name in the events.folder of abby.yml, such as siem.ndjson: letters, digits, - and _. "
            "It ends with .ndjson, .jsonl or .log."
        )
    return name


class FileSender:
    """One file; it is opened when it is needed, and again after it was moved."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / checked_name(name)
        self._handle: int | None = None
        self._thread = ThreadPoolExecutor(1, "event file")

    async def send(self, lines: Sequence[bytes]) -> None:
        """Append the lines, or raise DeliveryFailed."""
        try:
            await self._in_thread(self._append, b"".join(line + b"\n" for line in lines))
        except OSError as error:
            raise DeliveryFailed(f"Cannot write {self._path.name} in the events folder: {error.strerror}.") from None

    async def close(self) -> None:
        """Close the file after the write that may still run; the sender cannot be used again."""
        try:
            await self._in_thread(self._close)
        finally:
            self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[..., None], *values: bytes) -> None:
        """Run the work after all earlier work; a cancelled caller does not cancel it."""
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work, *values))

    def _append(self, data: bytes) -> None:
        try:
            self._write(self._opened(), data)
        except OSError:
            self._close()
            raise

    def _write(self, handle: int, data: bytes) -> None:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            data = b"\n" + data  # a crash left half a line: the first event must not become a part of it
        try:
            written = 0
            while written < len(data):
                written += os.write(handle, data[written:])
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)  # a full disk leaves no half line; the batch is written again later
            raise

    def _opened(self) -> int:
        if self._handle is not None and not self._is_in_place(self._handle):
            self._close()
        if self._handle is None:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._handle = os.open(self._path, flags, MODE)
        return self._handle

    def _is_in_place(self, handle: int) -> bool:
        try:
            there = self._path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(handle))

    def _close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
