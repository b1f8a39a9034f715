"""The store for sealed messages: its interface, and its implementations in a file system and in S3.

The S3 store works with any other durable store that obstore supports.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import uuid4

import obstore
from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from mailwarden.errors import StorageUnavailable

VAULT_UID = "vault"  # the object that holds the vault's uid
OWNER = "owner"  # the object that holds the uid of the deployment that may remove messages
PARTS = ".parts"  # unfinished writes
ABANDONED = 86_400.0  # seconds after which an unfinished write is removed
READ = 1_048_576
RETRY_AFTER = 5
BATCH = 1_000
MAX_SYNCED = 10_000  # folders to remember; a tenant has 256
PIECE = 5_242_880  # the smallest part of an upload that S3 accepts
AT_ONCE = 2  # concurrent parts, so that a message is never in memory as a whole

T = TypeVar("T")


class Blob(Struct, frozen=True):
    """One stored object."""

    name: str
    size: int
    changed: datetime


class BlobStore(Protocol):
    """Stores bytes by name. Methods raise StorageUnavailable when the store fails."""

    async def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store the pieces under the name atomically; return once they survive a crash of the machine."""

    async def create(self, name: str, contents: bytes) -> bool:
        """Store the contents unless the name exists; return whether they were stored.

        Two calls at once on an S3 store that ignores `If-None-Match: *` both store theirs.
        """

    def get(self, name: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes under the name in pieces, or raise FileNotFoundError."""

    async def has(self, name: str) -> bool: ...

    async def remove(self, name: str) -> None:
        """Remove the bytes under the name, if there are any."""

    def blobs(self) -> AsyncGenerator[Blob, None]:
        """Yield all blobs in any order, and remove the leftovers of interrupted writes."""


async def finish_in_thread(work: Callable[[], T]) -> T:
    """Run the work in a thread and return its result; a cancelled caller still waits for the thread.

    The caller may close files that the thread uses as soon as this returns."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise


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


class S3BlobStore:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, name: str, pieces: Iterable[bytes]) -> None:
        rest = iter(pieces)
        first, whole = await finish_in_thread(lambda: _begin(rest))
        with _storage_errors(), _bucket_errors():
            if whole:  # one call instead of three
                await obstore.put_async(self._store, name, first, use_multipart=False)
                return
            await obstore.put_async(self._store, name, chain([first], rest), chunk_size=PIECE, max_concurrency=AT_ONCE)

    async def create(self, name: str, contents: bytes) -> bool:
        if await self.has(name):
            return False
        try:
            with _storage_errors(), _bucket_errors():
                await obstore.put_async(self._store, name, contents, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    async def get(self, name: str) -> AsyncGenerator[bytes, None]:
        with _storage_errors():
            found = await obstore.get_async(self._store, name)
            async for piece in found.stream(READ):
                yield bytes(piece)

    async def has(self, name: str) -> bool:
        with _storage_errors():
            try:
                await obstore.head_async(self._store, name)
            except FileNotFoundError:
                return False
        return True

    async def remove(self, name: str) -> None:
        with _storage_errors(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, name)

    async def blobs(self) -> AsyncGenerator[Blob, None]:
        with _storage_errors():
            async for batch in obstore.list(self._store, chunk_size=1_000):
                for found in batch:
                    yield Blob(found["path"], found["size"], found["last_modified"])


def _begin(pieces: Iterator[bytes]) -> tuple[bytes, bool]:
    """Return the first part of an upload, and whether it is the whole."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) >= PIECE:
            return bytes(held), False
    return bytes(held), True


@contextmanager
def _bucket_errors() -> Iterator[None]:
    """Raise StorageUnavailable if a write does not find its bucket."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageUnavailable("The bucket of the quarantine does not exist.", retry_after=RETRY_AFTER) from error


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Raise the store's failures as StorageUnavailable; a missing or existing name is an answer."""
    try:
        yield
    except (FileNotFoundError, AlreadyExistsError, StorageUnavailable):
        raise
    except (BaseError, OSError) as error:
        raise StorageUnavailable("Cannot use the quarantine's S3 store.", retry_after=RETRY_AFTER) from error
