"""Blobs as files: write, fsync, rename, fsync the folder.

A crash loses no stored blob and leaves no partial file under its name. obstore's LocalStore is not used because it
renames without fsync.
"""

import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from mailwarden.errors import StorageUnavailable
from mailwarden.quarantine.blob_store import Blob, finish_in_thread

T = TypeVar("T")
PARTS = ".parts"  # unfinished writes
ABANDONED = 86_400.0  # seconds after which an unfinished write is removed
READ = 1_048_576
RETRY_AFTER = 5
BATCH = 1_000
MAX_SYNCED = 10_000  # folders to remember; a tenant has 256


class FilesystemStore:
    """Several processes may share the folder, on one host or over a file system that honours fsync."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced: set[Path] = set()  # folders that this process has synchronised

    async def put(self, name: str, pieces: Iterable[bytes]) -> None:
        await _run(lambda: self._write(name, pieces, os.replace))

    async def create(self, name: str, contents: bytes) -> bool:
        try:
            await _run(lambda: self._write(name, [contents], os.link))
        except FileExistsError:
            return False
        return True

    async def get(self, name: str) -> AsyncGenerator[bytes, None]:
        file = await _run(lambda: os.open(self._folder / name, os.O_RDONLY))
        try:
            while piece := await _run(lambda: os.read(file, READ)):
                yield piece
        finally:
            os.close(file)

    async def has(self, name: str) -> bool:
        return await _run((self._folder / name).is_file)

    async def remove(self, name: str) -> None:
        path = self._folder / name

        def unlink() -> None:
            try:
                path.unlink(missing_ok=True)
                _synchronise(path.parent)
            except (FileNotFoundError, NotADirectoryError):
                return

        await _run(unlink)

    async def blobs(self) -> AsyncGenerator[Blob, None]:
        walk = self._walk()
        while batch := await _run(lambda: list(islice(walk, BATCH))):
            for item in batch:
                yield item

    def _write(self, name: str, pieces: Iterable[bytes], place: Callable[[Path, Path], None]) -> None:
        path, part = self._folder / name, self._folder / PARTS / uuid4().hex
        self._prepare(part.parent)
        self._prepare(path.parent)
        try:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                for piece in pieces:
                    view = memoryview(piece)
                    while view:
                        view = view[os.write(file, view) :]
                os.fsync(file)
            finally:
                os.close(file)
            place(part, path)
        finally:
            with suppress(OSError):  # it was renamed, or the write failed
                part.unlink()
        _synchronise(path.parent)

    def _prepare(self, folder: Path) -> None:
        """Create a folder that survives a crash.

        Another process may have created the folder and crashed before its fsync, so this process synchronises the
        folder when it first uses it.
        """
        if folder in self._synced and folder.is_dir():
            return
        if folder == self._folder:
            _make_folder(folder)
        else:
            self._prepare(folder.parent)
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            _synchronise(folder.parent)
        if len(self._synced) >= MAX_SYNCED:
            self._synced.clear()
        self._synced.add(folder)

    def _walk(self) -> Iterator[Blob]:
        for folder, folders, files in os.walk(self._folder, onerror=_raise):
            if folder == str(self._folder) and PARTS in folders:
                folders.remove(PARTS)
                self._tidy()
            for file in files:
                path = Path(folder) / file
                with suppress(FileNotFoundError):  # removed meanwhile
                    found = path.stat()
                    moment = datetime.fromtimestamp(found.st_mtime, UTC)
                    yield Blob(path.relative_to(self._folder).as_posix(), found.st_size, moment)

    def _tidy(self) -> None:
        """Remove writes that a crash interrupted."""
        for part in (self._folder / PARTS).iterdir():
            with suppress(FileNotFoundError):
                if part.stat().st_mtime < time.time() - ABANDONED:
                    part.unlink()


async def _run(work: Callable[[], T]) -> T:
    try:
        return await finish_in_thread(work)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise StorageUnavailable(
            f"Cannot use the quarantine folder: {error.strerror}.", retry_after=RETRY_AFTER
        ) from error


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents so that they survive a crash."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _synchronise(folder.parent)


def _synchronise(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
