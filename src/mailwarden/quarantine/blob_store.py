"""The interface of the store for sealed messages, which the file system and S3 implement."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from datetime import datetime
from typing import Protocol, TypeVar

from msgspec import Struct

VAULT_UID = "vault"  # the object that holds the vault's uid


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
        """Store the contents unless the name exists; return whether they were stored."""

    def get(self, name: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes under the name in pieces, or raise FileNotFoundError."""

    async def has(self, name: str) -> bool: ...

    async def remove(self, name: str) -> None:
        """Remove the bytes under the name, if there are any."""

    def blobs(self) -> AsyncGenerator[Blob, None]:
        """Yield all blobs in any order, and remove the leftovers of interrupted writes."""


T = TypeVar("T")


async def finish_in_thread(work: Callable[[], T]) -> T:
    """Run the work in a thread and return its result; a cancelled caller still waits for the thread.

    The caller may close files that the thread uses as soon as this returns."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise
