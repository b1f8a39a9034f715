"""A vault in an S3-compatible store, over HTTP: the calls that it makes, and what it does when the store is full."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from mailwarden.crypto.keyring import KeyRing
from mailwarden.errors import StorageUnavailable
from mailwarden.quarantine.vault import Vault, open_vault
from mailwarden.serving.spool import Spooled
from mailwarden.settings.shared import Quarantine
from tests.integration.object_store import BUCKET, ObjectStore, running_store

TENANT = uuid4()
LARGE = b"Subject: large\r\n\r\n" + bytes(range(256)) * 60_000


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, Vault]]:
    (tmp_path / "s3").write_text("id\nsecret\n")
    async with running_store() as (store, address):
        store.address = address
        yield store, reopened(store, tmp_path)


def reopened(store: ObjectStore, folder: Path) -> Vault:
    """Return the vault as another process opens it."""
    settings = Quarantine(store=f"s3://{BUCKET}/mail", endpoint=store.address, credentials="s3")
    return open_vault(settings, folder, KeyRing.of(b"k" * 64))


async def test_a_small_message_is_one_call_and_comes_back(place: tuple[ObjectStore, Vault], tmp_path: Path):
    store, vault = place
    address = await vault.put(TENANT, Spooled.of(b"hello"))
    assert store.calls == ["PUT []"]
    assert (await vault.get(TENANT, address, tmp_path)).data() == b"hello"
    assert all(key.startswith(f"mail/{TENANT.hex}/") for key in store.objects)


async def test_a_large_message_goes_in_parts_and_comes_back(place: tuple[ObjectStore, Vault], tmp_path: Path):
    store, vault = place
    address = await vault.put(TENANT, Spooled.of(LARGE))
    assert sum("partNumber" in call for call in store.calls) >= 3
    found = await vault.get(TENANT, address, tmp_path)
    assert found.data() == LARGE
    found.close()


async def test_vaults_that_start_at_once_have_one_uid_where_create_overwrites(
    place: tuple[ObjectStore, Vault], tmp_path: Path
):
    store, vault = place
    store.ignores_create = True
    others = [reopened(store, tmp_path) for _ in range(8)]
    found = set(await asyncio.gather(vault.uid(), *(other.uid() for other in others)))
    assert len(found) == 1
    assert found == {await reopened(store, tmp_path).uid()}, "a host that starts later takes the stored uid"


async def test_an_existing_uid_is_kept_where_create_overwrites(place: tuple[ObjectStore, Vault], tmp_path: Path):
    store, vault = place
    store.ignores_create = True
    stored = uuid4()
    store.objects["mail/vault"] = str(stored).encode("ascii")
    assert await vault.uid() == stored
    assert store.objects["mail/vault"].decode() == str(stored)
    assert not [call for call in store.calls if call.startswith("PUT")]


@pytest.mark.parametrize("message", [b"hello", LARGE], ids=["small", "large"])
async def test_writers_of_one_message_at_once_lose_nothing_where_create_overwrites(
    place: tuple[ObjectStore, Vault], tmp_path: Path, message: bytes
):
    store, vault = place
    store.ignores_create = True
    vaults = [vault, *(reopened(store, tmp_path) for _ in range(3))]
    addresses = set(await asyncio.gather(*(each.put(TENANT, Spooled.of(message)) for each in vaults)))
    assert len(addresses) == 1
    found = await vault.get(TENANT, addresses.pop(), tmp_path)
    assert found.data() == message
    found.close()


@pytest.mark.parametrize("message", [b"hello", LARGE], ids=["small", "large"])
async def test_a_full_store_is_reported_and_stores_nothing(place: tuple[ObjectStore, Vault], message: bytes):
    store, vault = place
    store.full = True
    with pytest.raises(StorageUnavailable):
        await vault.put(TENANT, Spooled.of(message))
    assert store.objects == {}
