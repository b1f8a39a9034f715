"""Two deployments on one vault: only the owner removes messages, and both hold them."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from obstore.store import MemoryStore

from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.quarantine.blob_store import BlobStore, FilesystemStore, S3BlobStore
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.ownership import read_deployment, renew_deployment
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.retention import SWEEP, QuarantineRetention
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from tests.databases import ReusedDatabases
from tests.integration.held_messages import RAW, finished
from tests.integration.quarantine.quarantine_setup import ALL, QuarantineSetup
from workshop.rig.engines import Engines

RING = KeyRing.of(b"k" * 64)


class OverwritingStore(S3BlobStore):
    """Ignores create-only writes, as some S3 stores do."""

    async def create(self, name: str, contents: bytes) -> bool:
        await self.put(name, [contents])
        return True


@pytest.fixture
async def other(engines: Engines, reused_databases: ReusedDatabases) -> AsyncIterator[Database]:
    """Return the database of another deployment; copies of the tests' template have the same id."""
    name = reused_databases.take()
    database = Database(engines.postgresql.url(name))
    async with database.connection() as connection:
        await connection.execute("UPDATE deployment SET uid = gen_random_uuid()")
    yield database
    await database.close()
    reused_databases.give_back(name)


@pytest.fixture(params=["folder", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return FilesystemStore(tmp_path / "shared") if request.param == "folder" else S3BlobStore(MemoryStore())


def retention_of(database: Database, blobs: BlobStore) -> QuarantineRetention:
    vault = Vault(blobs, RING)
    return QuarantineRetention(vault, RetentionStore(database), ReleaseStore(database), RetentionDays())


async def hold(database: Database, blobs: BlobStore, setup: QuarantineSetup) -> tuple[Vault, bytes]:
    vault = Vault(blobs, RING)
    uid = await QuarantineWriter(vault, QuarantineStore(database), RetentionDays()).hold(
        finished(setup.north), Spooled.of(RAW)
    )
    (message,) = await RetentionStore(database).kept(ALL, await vault.uid())
    assert message.uid == uid
    assert message.address is not None
    return vault, message.address


async def test_another_deployment_removes_nothing(
    setup: QuarantineSetup, database: Database, other: Database, blobs: BlobStore
) -> None:
    await retention_of(database, blobs)._run()
    vault, address = await hold(database, blobs, setup)
    stranger = retention_of(other, blobs)
    with pytest.raises(
        CommandError, match=r"belongs to the deployment .* run: mailwarden quarantine take-ownership \S+$"
    ):
        await stranger.find_orphans(timedelta(seconds=-60))
    stranger._swept -= 2 * SWEEP
    await stranger._run()
    assert stranger.foreign
    async with other.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM quarantine_leavings") == 0
        await connection.execute(
            "INSERT INTO quarantine_leavings (vault, tenant, address) VALUES ($1, $2, $3)",
            await vault.uid(), setup.north, address,
        )  # fmt: skip
    with pytest.raises(CommandError, match="belongs to the deployment"):
        await stranger.clear()
    assert await vault.has(setup.north, address)


async def test_another_deployment_still_holds_messages(
    setup: QuarantineSetup, database: Database, other: Database, blobs: BlobStore
) -> None:
    await retention_of(other, blobs)._run()
    mine = retention_of(database, blobs)
    await mine._run()
    assert mine.foreign
    vault, address = await hold(database, blobs, setup)
    assert await vault.has(setup.north, address)


async def test_the_owner_removes_orphans(setup: QuarantineSetup, database: Database, blobs: BlobStore) -> None:
    retention, vault, tenant = retention_of(database, blobs), Vault(blobs, RING), uuid4()
    address = await vault.put(tenant, Spooled.of(RAW))
    assert await retention.find_orphans(timedelta(seconds=-60)) == 1
    assert await retention.clear() == 1
    assert not await vault.has(tenant, address)
    async with database.connection() as connection:
        assert await vault.owner() == (await read_deployment(connection)).uid


async def test_an_overwritten_claim_is_noticed(database: Database, other: Database) -> None:
    blobs = OverwritingStore(MemoryStore())
    first, second = retention_of(database, blobs), retention_of(other, blobs)
    await first._claim()
    async with other.connection() as connection:
        await Vault(blobs, RING).claim((await read_deployment(connection)).uid)  # both found no owner
    await second._claim()
    with pytest.raises(CommandError, match="belongs to the deployment"):
        await first.find_orphans()


async def test_a_restored_database_claims_no_vault_with_messages(
    setup: QuarantineSetup, database: Database, blobs: BlobStore
) -> None:
    vault, _ = await hold(database, blobs, setup)
    async with database.connection() as connection:
        before = await read_deployment(connection)
        after = await renew_deployment(connection)
        assert before.claims
        assert not after.claims
        assert before.uid != after.uid
    with pytest.raises(CommandError, match="has messages and no owner, and this database was restored"):
        await retention_of(database, blobs).find_orphans()
    assert await vault.owner() is None


async def test_a_restored_database_claims_an_empty_vault(database: Database, blobs: BlobStore) -> None:
    async with database.connection() as connection:
        await connection.execute("DELETE FROM deployment")  # as in a backup
        deployment = await read_deployment(connection)
    await retention_of(database, blobs).find_orphans()
    assert await Vault(blobs, RING).owner() == deployment.uid


async def test_an_unreadable_owner_is_another(database: Database, blobs: BlobStore) -> None:
    await blobs.put("owner", [b"\xff"])
    with pytest.raises(CommandError, match="take-ownership 00000000-0000-0000-0000-000000000000"):
        await retention_of(database, blobs).find_orphans()
