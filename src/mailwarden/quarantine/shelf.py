"""Where sealed bodies stand: one promise for a folder and for an S3-compatible store."""

from collections.abc import AsyncGenerator, Iterable
from datetime import datetime
from typing import Protocol

from msgspec import Struct

MARK = "vault"  # an object whose contents name the vault


class Item(Struct, frozen=True):
    """One object of a shelf."""

    name: str
    size: int
    changed: datetime


class Shelf(Protocol):
    """Keeps named runs of bytes. What goes wrong with it reaches the caller as StorageUnavailable."""

    async def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Keep the pieces under the name, all or nothing; return once they outlast a crash of the machine."""

    async def create(self, name: str, contents: bytes) -> bool:
        """Keep the contents unless the name is taken; tell whether they are kept."""

    def get(self, name: str) -> AsyncGenerator[bytes, None]:
        """Yield what is kept under the name, piece by piece, or raise FileNotFoundError."""

    async def has(self, name: str) -> bool: ...

    async def remove(self, name: str) -> None:
        """Remove what is kept under the name; what is not there is gone already."""

    def items(self) -> AsyncGenerator[Item, None]:
        """Yield all that is kept, in no order, and remove what broken writes left behind."""
