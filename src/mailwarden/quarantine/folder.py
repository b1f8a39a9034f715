"""A shelf that is a folder: written, synchronised, renamed, the folder synchronised.

A crash loses nothing that was kept, and leaves nothing half written under its name. By our own
code, because obstore's LocalStore renames without ever calling fsync.
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
from mailwarden.quarantine.shelf import Item
from mailwarden.quarantine.thread import finish_in_thread

T = TypeVar("T")
PARTS = ".parts"  # what is being written
ABANDONED = 86_400.0  # seconds after which nobody is writing it any more
READ = 1_048_576
RETRY_AFTER = 5
BATCH = 1_000
MAX_SOUND = 10_000  # folders that are remembered; 256 a tenant


class FolderShelf:
    """Several processes may share it, on one host or over a file system that keeps its word about fsync."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sound: set[Path] = set()  # folders that this process knows to outlast a crash

    async def put(self, name: str, pieces: Iterable[bytes]) -> None:
        await _in_thread(lambda: self._write(name, pieces, os.replace))

    async def create(self, name: str, contents: bytes) -> bool:
        try:
            await _in_thread(lambda: self._write(name, [contents], os.link))
        except FileExistsError:
            return False
        return True

    async def get(self, name: str) -> AsyncGenerator[bytes, None]:
        file = await _in_thread(lambda: os.open(self._folder / name, os.O_RDONLY))
        try:
            while piece := await _in_thread(lambda: os.read(file, READ)):
                yield piece
        finally:
            os.close(file)

    async def has(self, name: str) -> bool:
        return await _in_thread((self._folder / name).is_file)

    async def remove(self, name: str) -> None:
        path = self._folder / name

        def unlink() -> None:
            try:
                path.unlink(missing_ok=True)
                _synchronise(path.parent)
            except (FileNotFoundError, NotADirectoryError):
                return

        await _in_thread(unlink)

    async def items(self) -> AsyncGenerator[Item, None]:
        walk = self._walk()
        while batch := await _in_thread(lambda: list(islice(walk, BATCH))):
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
            with suppress(OSError):  # it is renamed, or of no use
                part.unlink()
        _synchronise(path.parent)

    def _prepare(self, folder: Path) -> None:
        """Make a folder of ours that outlasts a crash.

        One that is there already may be somebody's who has not synchronised it yet, or died or failed before: it is
        synchronised when this process first uses it.
        """
        if folder in self._sound and folder.is_dir():
            return
        if folder == self._folder:
            _make_folder(folder)
        else:
            self._prepare(folder.parent)
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            _synchronise(folder.parent)
        if len(self._sound) >= MAX_SOUND:
            self._sound.clear()
        self._sound.add(folder)

    def _walk(self) -> Iterator[Item]:
        for folder, folders, files in os.walk(self._folder, onerror=_raise):
            if folder == str(self._folder) and PARTS in folders:
                folders.remove(PARTS)
                self._tidy()
            for file in files:
                path = Path(folder) / file
                with suppress(FileNotFoundError):  # removed since we looked
                    found = path.stat()
                    moment = datetime.fromtimestamp(found.st_mtime, UTC)
                    yield Item(path.relative_to(self._folder).as_posix(), found.st_size, moment)

    def _tidy(self) -> None:
        """Remove what a crash kept from being renamed."""
        for part in (self._folder / PARTS).iterdir():
            with suppress(FileNotFoundError):
                if part.stat().st_mtime < time.time() - ABANDONED:
                    part.unlink()


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        return await finish_in_thread(work)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise StorageUnavailable(
            f"The quarantine's folder cannot be used ({error.strerror}).", retry_after=RETRY_AFTER
        ) from error


def _make_folder(folder: Path) -> None:
    """Make a folder that outlasts a crash, with those above it."""
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
