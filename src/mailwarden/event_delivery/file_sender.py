"""Appends events to a file of abby's events folder, one JSON document a line (NDJSON).

A log rotation may move or remove the file at any time: each batch goes to the file that has the name now. A batch is
written with one call and synchronised to the disk before it counts as delivered. Each write has a deadline and its own
thread: a disk that hangs holds no other receiver, and the threads are daemons, so it delays no shutdown. A file has one
thread at a time: the next attempt fails while a write still runs, and the file is closed after it.
"""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

from mailwarden.errors import SchemaViolation
from mailwarden.event_delivery.http_client import DeliveryFailed

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}\.(?:ndjson|jsonl|log)")
MODE = 0o640
DEADLINE = 15.0  # seconds for one batch
CLOSE_DEADLINE = 2.0  # seconds that a receiver's end waits for its file


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
        self._running: asyncio.Future[None] | None = None

    async def send(self, lines: Sequence[bytes]) -> None:
        """Append the lines, or raise DeliveryFailed. A write that exceeds its deadline may still succeed later."""
        if self._is_busy():
            raise DeliveryFailed(f"An earlier write to {self._path.name} still waits for the disk.")
        try:
            async with asyncio.timeout(DEADLINE):
                await asyncio.shield(self._start(self._append, b"".join(line + b"\n" for line in lines)))
        except TimeoutError:
            raise DeliveryFailed(
                f"The disk did not write {self._path.name} in the events folder within {DEADLINE:.0f} seconds."
            ) from None
        except OSError as error:
            raise DeliveryFailed(f"Cannot write {self._path.name} in the events folder: {error.strerror}.") from None

    async def close(self) -> None:
        """Close the file after the write that may still run, without waiting for a disk that hangs."""
        with suppress(OSError):  # a timeout is an OSError
            async with asyncio.timeout(CLOSE_DEADLINE):
                if self._running is not None and self._is_busy():
                    await asyncio.wait([self._running])
                await asyncio.shield(self._start(self._close))
                return
        if self._running is not None and self._is_busy():
            self._running.add_done_callback(lambda _: self._start(self._close))

    def _is_busy(self) -> bool:
        return self._running is not None and not self._running.done()

    def _start(self, work: Callable[..., None], *values: bytes) -> asyncio.Future[None]:
        """Run the work in a thread; a cancelled caller does not cancel it."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        done.add_done_callback(lambda future: future.cancelled() or future.exception())  # without a waiting caller too

        def run() -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile, and with it the caller
                try:
                    work(*values)
                except Exception as error:  # the caller gets it
                    loop.call_soon_threadsafe(done.set_exception, error)
                else:
                    loop.call_soon_threadsafe(done.set_result, None)

        Thread(target=run, name="event file", daemon=True).start()
        self._running = done
        return done

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
        written = 0
        try:
            while written < len(data):
                written += os.write(handle, data[written:])
            os.fsync(handle)
        except OSError:
            # A full disk leaves no half line; the batch is written again later. After a hang others may have written.
            if os.fstat(handle).st_size == size + written:
                os.ftruncate(handle, size)
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
