"""A shelf that is an S3-compatible store, or anything else that obstore knows and that keeps what it has taken."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from mailwarden.errors import StorageUnavailable
from mailwarden.quarantine.shelf import Item
from mailwarden.quarantine.thread import finish_in_thread

PIECE = 5_242_880  # the least that S3 takes as a part of an upload
AT_ONCE = 2  # parts under way: a message is never in memory whole
READ = 1_048_576
RETRY_AFTER = 5


class ObjectShelf:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, name: str, pieces: Iterable[bytes]) -> None:
        rest = iter(pieces)
        first, whole = await finish_in_thread(lambda: _begin(rest))
        with _told():
            if whole:  # one call instead of three
                await obstore.put_async(self._store, name, first, use_multipart=False)
                return
            await obstore.put_async(self._store, name, chain([first], rest), chunk_size=PIECE, max_concurrency=AT_ONCE)

    async def create(self, name: str, contents: bytes) -> bool:
        try:
            with _told():
                await obstore.put_async(self._store, name, contents, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    async def get(self, name: str) -> AsyncGenerator[bytes, None]:
        with _told():
            found = await obstore.get_async(self._store, name)
            async for piece in found.stream(READ):
                yield bytes(piece)

    async def has(self, name: str) -> bool:
        with _told():
            try:
                await obstore.head_async(self._store, name)
            except FileNotFoundError:
                return False
        return True

    async def remove(self, name: str) -> None:
        with _told(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, name)

    async def items(self) -> AsyncGenerator[Item, None]:
        with _told():
            async for batch in obstore.list(self._store, chunk_size=1_000):
                for found in batch:
                    yield Item(found["path"], found["size"], found["last_modified"])


def _begin(pieces: Iterator[bytes]) -> tuple[bytes, bool]:
    """Return as many pieces as one part of an upload holds, and whether they are all there are."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) >= PIECE:
            return bytes(held), False
    return bytes(held), True


@contextmanager
def _told() -> Iterator[None]:
    """Tell whatever the store says as StorageUnavailable, but for what is an answer."""
    try:
        yield
    except (FileNotFoundError, AlreadyExistsError, StorageUnavailable):
        raise
    except (BaseError, OSError) as error:
        raise StorageUnavailable("The quarantine's store cannot be used.", retry_after=RETRY_AFTER) from error
