"""The bytes of an upload: in memory while they are few, in an unlinked file once they are many.

Security: holds hostile bytes. A spool file has no name and mode 0600, so it disappears in every case, also after a
crash.
"""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from mailwarden.errors import ConfigurationError, Overloaded

MAX_IN_MEMORY = 1_048_576
BLOCK = 1_048_576
CHUNK = 262_144


class Spooled:
    """A sequence of bytes, in memory or in a file; a window shares the bytes of its whole."""

    __slots__ = ("_fd", "_memory", "_offset", "_owner", "_whole", "size")

    def __init__(self, memory: bytes | None, fd: int, offset: int, size: int, *, whole: bool, owner: bool) -> None:
        self._memory = memory
        self._fd = fd
        self._offset = offset
        self._whole = whole
        self._owner = owner
        self.size = size

    @classmethod
    def of(cls, data: bytes) -> "Spooled":
        return cls(data, -1, 0, len(data), whole=True, owner=True)

    def open_to_read(self) -> int | None:
        """Return a new read-only descriptor of a file with exactly these bytes, or None if there is no such file.

        A process that must not change the message can have it: writing and truncating fail.
        """
        if self._memory is not None or not self._whole:
            return None
        return os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def in_memory(self) -> bool:
        return self._memory is not None

    def window(self, offset: int, length: int) -> "Spooled":
        """Return a part of these bytes; it is usable until the whole is closed."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise ValueError("the window lies outside of the bytes")
        whole = self._whole and length == self.size
        return Spooled(self._memory, self._fd, self._offset + offset, length, whole=whole, owner=False)

    def data(self) -> bytes:
        """Return all bytes at once; for small sizes in memory."""
        if self._memory is not None:
            return self._memory[self._offset : self._offset + self.size]
        return b"".join(self.chunks())

    def chunks(self, size: int = CHUNK) -> Iterator[bytes]:
        """Yield the bytes in order, at most `size` at once."""
        end = self._offset + self.size
        for start in range(self._offset, end, size):
            yield self._read(start, min(size, end - start))

    async def stream(self, size: int = CHUNK) -> AsyncIterator[bytes]:
        """Yield the bytes in order without blocking the event loop on the disk."""
        end = self._offset + self.size
        for start in range(self._offset, end, size):
            wanted = min(size, end - start)
            if self._memory is not None:
                yield self._read(start, wanted)
            else:
                yield await asyncio.to_thread(self._read, start, wanted)

    def sha256(self) -> bytes:
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.digest()

    def close(self) -> None:
        """Close the file; only its owner does, a window does nothing."""
        if self._fd >= 0 and self._owner:
            os.close(self._fd)
            self._fd = -1

    def _read(self, start: int, wanted: int) -> bytes:
        if self._memory is not None:
            return self._memory[start : start + wanted]
        found = os.pread(self._fd, wanted, start)
        while len(found) < wanted:
            more = os.pread(self._fd, wanted - len(found), start + len(found))
            if not more:
                raise OSError("the spool file is shorter than what was written to it")
            found += more
        return found


class SpoolWriter:
    """Collects bytes chunk by chunk; the first mebibyte stays in memory, then all bytes go to a file."""

    __slots__ = ("_fd", "_folder", "_held", "_pending", "_size")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending: list[bytes] = []
        self._held = 0
        self._size = 0
        self._fd = -1

    async def write(self, chunk: bytes) -> None:
        self._pending.append(chunk)
        self._held += len(chunk)
        self._size += len(chunk)
        if self._held > MAX_IN_MEMORY if self._fd < 0 else self._held >= BLOCK:
            await self._flush()

    async def finish(self) -> Spooled:
        """Return the written bytes; the writer is empty afterwards."""
        if self._fd < 0:
            memory, self._pending = b"".join(self._pending), []
            return Spooled.of(memory)
        await self._flush()
        fd, self._fd = self._fd, -1
        return Spooled(None, fd, 0, self._size, whole=True, owner=True)

    def discard(self) -> None:
        """Drop everything; has no effect after `finish`."""
        self._pending = []
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def _flush(self) -> None:
        pending, self._pending, self._held = self._pending, [], 0
        storing = asyncio.ensure_future(asyncio.to_thread(self._store, pending))
        try:
            await asyncio.shield(storing)
        except asyncio.CancelledError:
            # A cancelled upload must not close the file while the thread still writes to it.
            await asyncio.wait([storing])
            raise
        except OSError as error:
            raise Overloaded(f"There is no room to keep the upload ({error.strerror}).", retry_after=5) from None

    def _store(self, pending: list[bytes]) -> None:
        if self._fd < 0:
            with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
                self._fd = os.dup(file.fileno())
        for chunk in pending:
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._fd, view) :]


def prepare_spool(folder: Path) -> Path:
    """Make the spool folder, readable by this user alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"spool: {folder} cannot be made ({error.strerror}).") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"spool: {folder} cannot be written to by this user.")
    return folder
