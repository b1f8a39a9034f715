"""Blobs in an S3-compatible store, or in any other durable store that obstore supports."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from mailwarden.errors import StorageUnavailable
from mailwarden.quarantine.blob_store import Blob, finish_in_thread

PIECE = 5_242_880  # the smallest part of an upload that S3 accepts
AT_ONCE = 2  # concurrent parts, so that a message is never in memory as a whole
READ = 1_048_576
RETRY_AFTER = 5


class S3BlobStore:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, name: str, pieces: Iterable[bytes]) -> None:
        rest = iter(pieces)
        first, whole = await finish_in_thread(lambda: _begin(rest))
        with _storage_errors():
            if whole:  # one call instead of three
                await obstore.put_async(self._store, name, first, use_multipart=False)
                return
            await obstore.put_async(self._store, name, chain([first], rest), chunk_size=PIECE, max_concurrency=AT_ONCE)

    async def create(self, name: str, contents: bytes) -> bool:
        try:
            with _storage_errors():
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
def _storage_errors() -> Iterator[None]:
    """Raise the store's failures as StorageUnavailable; a missing or existing name is an answer."""
    try:
        yield
    except (FileNotFoundError, AlreadyExistsError, StorageUnavailable):
        raise
    except (BaseError, OSError) as error:
        raise StorageUnavailable("Cannot use the quarantine's S3 store.", retry_after=RETRY_AFTER) from error
