"""The vault: the bytes of held messages, sealed, found by an address that only whoever has the key can make.

A tenant's message has one address under one key, however often it is held. The address of the same bytes is another one
for each tenant, so that nobody learns from a vault whether two of them were sent the same. A message that is sealed
anew keeps its address, which is then only a name: what opens under an address was sealed for it.

Security: whole messages pass through here. They are sealed before they are written, and given back only when every
byte is known to be the one that was sealed.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Protocol
from uuid import UUID, uuid4

from msgspec import Struct

from mailwarden.crypto.frames import FrameOpener, key_in_head, seal_frames
from mailwarden.crypto.keyring import BrokenSeal, KeyRing
from mailwarden.crypto.mac import Mac
from mailwarden.quarantine.shelf import MARK, Item, Shelf
from mailwarden.quarantine.thread import finish_in_thread
from mailwarden.serving.spool import Spooled, SpoolWriter

ADDRESS = 32


class Bytes(Protocol):
    """A message that can be read more than once, piece by piece."""

    size: int

    def chunks(self) -> Iterator[bytes]: ...


class Body(Struct, frozen=True):
    """One sealed message of a vault."""

    tenant: UUID
    address: bytes
    changed: datetime


class Vault:
    def __init__(self, shelf: Shelf, ring: KeyRing) -> None:
        self._shelf = shelf
        self._ring = ring
        self._mac = Mac(ring, b"mailwarden quarantine addresses 1")
        self._uid: UUID | None = None

    async def uid(self) -> UUID:
        """Return what names this vault, wherever it is used from; made when it is used for the first time."""
        if self._uid is None:
            await self._shelf.create(MARK, str(uuid4()).encode("ascii"))
            async with aclosing(self._shelf.get(MARK)) as pieces:
                self._uid = UUID(b"".join([piece async for piece in pieces]).decode("ascii"))
        return self._uid

    async def put(self, tenant: UUID, raw: Bytes) -> bytes:
        """Keep a message durably; return its address."""
        address = await finish_in_thread(lambda: self._address(tenant, raw))
        await self._write(tenant, address, raw)
        return address

    async def reseal(self, tenant: UUID, address: bytes, spool: Path) -> bool:
        """Seal a message with the current key, under the same address; False where it is already, or is gone."""
        if await self.key_of(tenant, address) in (None, self._ring.current.key_id):
            return False
        try:
            raw = await self.get(tenant, address, spool)
        except FileNotFoundError:
            return False
        try:
            await self._write(tenant, address, raw)
        finally:
            raw.close()
        return True

    async def key_of(self, tenant: UUID, address: bytes) -> bytes | None:
        """Return the id of the key that a message is sealed with; None where there is no message of ours."""
        try:
            async with aclosing(self._shelf.get(_name(tenant, address))) as pieces:
                async for piece in pieces:
                    return key_in_head(piece)
        except FileNotFoundError:
            pass
        return None

    async def _write(self, tenant: UUID, address: bytes, raw: Bytes) -> None:
        bound = tenant.bytes + address
        await self._shelf.put(_name(tenant, address), seal_frames(self._ring, bound, raw.chunks()))

    async def get(self, tenant: UUID, address: bytes, spool: Path) -> Spooled:
        """Return a message, every byte of it verified; raise FileNotFoundError or BrokenSeal."""
        writer = SpoolWriter(spool)
        try:
            async with aclosing(self._opened(tenant, address)) as pieces:
                async for piece in pieces:
                    await writer.write(piece)
            return await writer.finish()
        finally:
            writer.discard()

    async def is_sound(self, tenant: UUID, address: bytes) -> bool:
        """Tell whether a message is there with every byte of it; it is read to its end."""
        try:
            async with aclosing(self._opened(tenant, address)) as pieces:
                async for _ in pieces:
                    pass
        except (FileNotFoundError, BrokenSeal):
            return False
        return True

    async def _opened(self, tenant: UUID, address: bytes) -> AsyncGenerator[bytes, None]:
        """Yield a message piece by piece; it is whole only once this has come to its end without raising."""
        opener = FrameOpener(self._ring, tenant.bytes + address)
        async with aclosing(self._shelf.get(_name(tenant, address))) as pieces:
            async for piece in pieces:
                for opened in await asyncio.to_thread(lambda given: list(opener.take(given)), piece):
                    yield opened
        yield opener.finish()

    async def has(self, tenant: UUID, address: bytes) -> bool:
        return await self._shelf.has(_name(tenant, address))

    async def remove(self, tenant: UUID, address: bytes) -> None:
        await self._shelf.remove(_name(tenant, address))

    async def bodies(self) -> AsyncGenerator[Body, None]:
        """Yield all that is in the vault; what we did not put there is left alone."""
        async with aclosing(self._shelf.items()) as items:
            async for item in items:
                body = _body(item)
                if body is not None:
                    yield body

    def _address(self, tenant: UUID, raw: Bytes) -> bytes:
        mac = self._mac.begin()
        mac.update(tenant.bytes)
        for chunk in raw.chunks():
            mac.update(chunk)
        return mac.digest()


def _name(tenant: UUID, address: bytes) -> str:
    text = address.hex()
    return f"{tenant.hex}/{text[:2]}/{text}"


def _body(item: Item) -> Body | None:
    parts = item.name.split("/")
    try:
        tenant, address = UUID(hex=parts[0]), bytes.fromhex(parts[-1])
    except ValueError:
        return None
    if len(address) != ADDRESS or item.name != _name(tenant, address):
        return None
    return Body(tenant, address, item.changed)
