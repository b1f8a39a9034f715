"""What a vault promises, in a folder and in a store of obstore's."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest
from obstore.store import MemoryStore

from mailwarden.crypto.keyring import BrokenSeal, KeyRing
from mailwarden.quarantine.blob_store import BlobStore, FilesystemStore, S3BlobStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled

KEY = KeyRing.of(b"k" * 64)
NORTH, SOUTH = uuid4(), uuid4()
LARGE = b"Subject: large\r\n\r\n" + bytes(range(256)) * 30_000


@pytest.fixture(params=["folder", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return FilesystemStore(tmp_path / "vault") if request.param == "folder" else S3BlobStore(MemoryStore())


@pytest.fixture
def vault(store: BlobStore) -> Vault:
    return Vault(store, KEY)


async def names_on(store: BlobStore) -> list[str]:
    return [item.name async for item in store.blobs()]


async def read(vault: Vault, tenant: UUID, address: bytes, spool: Path) -> bytes:
    found = await vault.get(tenant, address, spool)
    try:
        return found.data()
    finally:
        found.close()


@pytest.mark.parametrize("message", [b"", b"x", LARGE], ids=["empty", "small", "large"])
async def test_a_message_comes_back_byte_for_byte(vault: Vault, tmp_path: Path, message: bytes):
    address = await vault.put(NORTH, Spooled.of(message))
    assert await read(vault, NORTH, address, tmp_path) == message


async def test_the_same_message_is_kept_once_a_tenant(vault: Vault, store: BlobStore):
    first, second = await vault.put(NORTH, Spooled.of(b"x")), await vault.put(NORTH, Spooled.of(b"x"))
    elsewhere = await vault.put(SOUTH, Spooled.of(b"x"))
    assert first == second != elsewhere
    assert len(await names_on(store)) == 2


async def test_a_tenant_cannot_open_blobs_of_another(vault: Vault, store: BlobStore, tmp_path: Path):
    address = await vault.put(NORTH, Spooled.of(b"secret"))
    with pytest.raises(FileNotFoundError):
        await vault.get(SOUTH, address, tmp_path)
    stolen = b"".join([piece async for piece in store.get((await names_on(store))[0])])
    await store.put(f"{SOUTH.hex}/{address.hex()[:2]}/{address.hex()}", [stolen])
    with pytest.raises(BrokenSeal):
        await vault.get(SOUTH, address, tmp_path)


async def test_nothing_of_a_message_stands_in_clear(vault: Vault, store: BlobStore):
    await vault.put(NORTH, Spooled.of(b"a very telling sentence"))
    (name,) = await names_on(store)
    assert b"telling" not in b"".join([piece async for piece in store.get(name)])


async def test_another_key_finds_nothing_and_opens_nothing(vault: Vault, store: BlobStore, tmp_path: Path):
    address = await vault.put(NORTH, Spooled.of(b"x"))
    other = Vault(store, KeyRing.of(b"o" * 64))
    assert await other.put(NORTH, Spooled.of(b"x")) != address
    with pytest.raises(BrokenSeal):
        await other.get(NORTH, address, tmp_path)


async def test_removing_a_blob_twice_is_harmless(vault: Vault, tmp_path: Path):
    address = await vault.put(NORTH, Spooled.of(b"x"))
    assert await vault.has(NORTH, address)
    await vault.remove(NORTH, address)
    await vault.remove(NORTH, address)
    await vault.remove(SOUTH, address)
    assert not await vault.has(NORTH, address)
    with pytest.raises(FileNotFoundError):
        await vault.get(NORTH, address, tmp_path)


async def test_a_vault_has_one_name_wherever_it_is_used_from(vault: Vault, store: BlobStore):
    assert await vault.uid() == await Vault(store, KEY).uid()
    assert [body async for body in vault.bodies()] == []


async def test_all_own_blobs_are_listed_and_no_foreign_file(vault: Vault, store: BlobStore):
    kept = {(NORTH, await vault.put(NORTH, Spooled.of(bytes([number])))) for number in range(20)}
    await vault.uid()
    await store.put("somebody/put/this-here", [b"?"])
    await store.put(f"{NORTH.hex}/zz/{'00' * 32}", [b"?"])
    assert {(body.tenant, body.address) async for body in vault.bodies()} == kept


async def test_a_name_is_given_once(store: BlobStore):
    assert await store.create("vault", b"first")
    assert not await store.create("vault", b"second")
    assert b"".join([piece async for piece in store.get("vault")]) == b"first"
