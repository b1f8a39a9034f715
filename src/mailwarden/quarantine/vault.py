"""The vault: the encrypted bytes of held messages, stored under an address that is a MAC of tenant and content.

A tenant's message has one address under one key, however often it is held. The same bytes have another address for
each tenant, so the vault does not show whether two tenants received the same message. A message that is encrypted
again under a new key keeps its address; the address is authenticated with the bytes.

Security: whole messages pass through here. The vault encrypts before it writes, and returns a message only after it
has verified every byte.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from msgspec import Struct
from obstore.store import S3Store

from mailwarden.crypto.frames import FrameOpener, key_in_head, seal_frames
from mailwarden.crypto.keyring import BrokenSeal, KeyRing
from mailwarden.crypto.mac import Mac
from mailwarden.errors import ConfigurationError
from mailwarden.quarantine.blob_store import (
    OWNER,
    VAULT_UID,
    Blob,
    BlobStore,
    FilesystemStore,
    S3BlobStore,
    finish_in_thread,
)
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.settings.shared import Quarantine

if TYPE_CHECKING:  # for the type checker only
    from obstore.store import ClientConfig, RetryConfig, S3Config

ADDRESS = 32
UNREADABLE = UUID(int=0)  # the owner of a vault whose object `owner` has other contents

TIMEOUT = "20s"
RETRIES = timedelta(seconds=30)  # the sending MTA waits meanwhile


class Bytes(Protocol):
    """A message that can be read in chunks, more than once."""

    size: int

    def chunks(self) -> Iterator[bytes]: ...


class Body(Struct, frozen=True):
    """One stored message."""

    tenant: UUID
    address: bytes
    changed: datetime


class Vault:
    def __init__(self, blobs: BlobStore, ring: KeyRing, first_uid: UUID | None = None) -> None:
        """`first_uid` becomes the uid of a vault that has none yet; a random one if it is None."""
        self._first_uid = first_uid
        self._blobs = blobs
        self._ring = ring
        self._mac = Mac(ring, b"mailwarden quarantine addresses 1")
        self._uid: UUID | None = None

    async def uid(self) -> UUID:
        """Return the uid of this vault, the same for all hosts; the first use creates it."""
        if self._uid is None:
            try:
                self._uid = await self._read_uid()
            except FileNotFoundError:
                await self._blobs.create(VAULT_UID, str(self._first_uid or uuid4()).encode("ascii"))
                self._uid = await self._read_uid()
        return self._uid

    async def _read_uid(self) -> UUID:
        async with aclosing(self._blobs.get(VAULT_UID)) as pieces:
            return UUID(b"".join([piece async for piece in pieces]).decode("ascii"))

    async def owner(self) -> UUID | None:
        """Return the uid of the deployment that may remove messages; None if no deployment has claimed the vault."""
        try:
            async with aclosing(self._blobs.get(OWNER)) as pieces:
                found = b"".join([piece async for piece in pieces])
        except FileNotFoundError:
            return None
        try:
            return UUID(found.decode("ascii"))
        except ValueError:
            return UNREADABLE

    async def claim(self, owner: UUID) -> bool:
        """Record the owner unless there is one; return whether it was recorded."""
        return await self._blobs.create(OWNER, str(owner).encode("ascii"))

    async def take_ownership(self, owner: UUID) -> None:
        """Record the owner in place of another."""
        await self._blobs.put(OWNER, [str(owner).encode("ascii")])

    async def is_empty(self) -> bool:
        """Return whether the vault has no message."""
        async with aclosing(self.bodies()) as bodies:
            async for _ in bodies:
                return False
        return True

    async def put(self, tenant: UUID, raw: Bytes) -> bytes:
        """Store a message durably; return its address."""
        address = await finish_in_thread(lambda: self._address(tenant, raw))
        await self._write(tenant, address, raw)
        return address

    async def reencrypt(self, tenant: UUID, address: bytes, spool: Path) -> bool:
        """Encrypt a message with the current key under the same address; return False if it is already, or is gone."""
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
        """Return the id of the key of a message; None if there is no such message."""
        try:
            async with aclosing(self._blobs.get(blob_name(tenant, address))) as pieces:
                async for piece in pieces:
                    return key_in_head(piece)
        except FileNotFoundError:
            pass
        return None

    async def _write(self, tenant: UUID, address: bytes, raw: Bytes) -> None:
        bound = tenant.bytes + address
        await self._blobs.put(blob_name(tenant, address), seal_frames(self._ring, bound, raw.chunks()))

    async def get(self, tenant: UUID, address: bytes, spool: Path) -> Spooled:
        """Return a message with every byte verified; raise FileNotFoundError or BrokenSeal."""
        writer = SpoolWriter(spool)
        try:
            async with aclosing(self._decrypted(tenant, address)) as pieces:
                async for piece in pieces:
                    await writer.write(piece)
            return await writer.finish()
        finally:
            writer.discard()

    async def verifies(self, tenant: UUID, address: bytes) -> bool:
        """Read a message to its end and return whether every byte verifies."""
        try:
            async with aclosing(self._decrypted(tenant, address)) as pieces:
                async for _ in pieces:
                    pass
        except (FileNotFoundError, BrokenSeal):
            return False
        return True

    async def _decrypted(self, tenant: UUID, address: bytes) -> AsyncGenerator[bytes, None]:
        """Yield a message in pieces; it is verified only when the generator has ended without an error."""
        opener = FrameOpener(self._ring, tenant.bytes + address)
        async with aclosing(self._blobs.get(blob_name(tenant, address))) as pieces:
            async for piece in pieces:
                for opened in await asyncio.to_thread(lambda given: list(opener.take(given)), piece):
                    yield opened
        yield opener.finish()

    async def has(self, tenant: UUID, address: bytes) -> bool:
        return await self._blobs.has(blob_name(tenant, address))

    async def remove(self, tenant: UUID, address: bytes) -> None:
        await self._blobs.remove(blob_name(tenant, address))

    async def bodies(self) -> AsyncGenerator[Body, None]:
        """Yield all messages in the vault; other objects are skipped."""
        async with aclosing(self._blobs.blobs()) as blobs:
            async for item in blobs:
                body = _body(item)
                if body is not None:
                    yield body

    def _address(self, tenant: UUID, raw: Bytes) -> bytes:
        mac = self._mac.begin()
        mac.update(tenant.bytes)
        for chunk in raw.chunks():
            mac.update(chunk)
        return mac.digest()


def blob_name(tenant: UUID, address: bytes) -> str:
    """Return the name of a message in the blob store."""
    text = address.hex()
    return f"{tenant.hex}/{text[:2]}/{text}"


def _body(item: Blob) -> Body | None:
    parts = item.name.split("/")
    try:
        tenant, address = UUID(hex=parts[0]), bytes.fromhex(parts[-1])
    except ValueError:
        return None
    if len(address) != ADDRESS or item.name != blob_name(tenant, address):
        return None
    return Body(tenant, address, item.changed)


def open_vault(settings: Quarantine, folder: Path, ring: KeyRing) -> Vault:
    """Return the vault; paths are relative to the configuration folder. The first use connects."""
    return Vault(open_blob_store(settings, folder), ring, first_uid(settings))


def first_uid(settings: Quarantine) -> UUID | None:
    """Return the uid that a new vault in a bucket gets; None if the store is a folder.

    Some S3 stores ignore `If-None-Match: *` and overwrite. All hosts therefore propose the same uid for a bucket.
    """
    if settings.bucket is None:
        return None
    return uuid5(NAMESPACE_URL, f"{settings.endpoint} {'/'.join(settings.bucket)}")


def open_blob_store(settings: Quarantine, folder: Path) -> BlobStore:
    """Return the store of the sealed messages."""
    if settings.bucket is None:
        return FilesystemStore(folder / settings.store)
    bucket, prefix = settings.bucket
    key_id, secret = _credentials(folder / settings.credentials)
    config: S3Config = {"region": settings.region, "access_key_id": key_id, "secret_access_key": secret}
    if settings.endpoint:
        config["endpoint"] = settings.endpoint
    options: ClientConfig = {"timeout": TIMEOUT, "allow_http": settings.endpoint.startswith("http://")}
    retries: RetryConfig = {"max_retries": 2, "retry_timeout": RETRIES}
    store = S3Store(bucket, prefix=prefix or None, config=config, client_options=options, retry_config=retries)
    return S3BlobStore(store)


def _credentials(path: Path) -> tuple[str, str]:
    try:
        lines = path.read_text("ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"quarantine.credentials: cannot read {path}: {error}.") from None
    if len(lines) != 2:
        raise ConfigurationError(f"quarantine.credentials: {path} must have two lines, the key's id and its secret.")
    return lines[0], lines[1]
