"""The metrics of the quarantine, against PostgreSQL."""

from datetime import timedelta
from pathlib import Path

from mailwarden.access.tenant_store import TenantStore
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.retention import QuarantineMetrics
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.metrics import Metrics
from tests.integration.held_messages import RAW, finished

ALL = Scope.deployment()


async def test_metrics_of_held_messages_and_waiting_releases(database_url: str, tmp_path: Path):
    database, metrics = Database(database_url), Metrics()
    store, retention = QuarantineStore(database), RetentionStore(database)
    gauges = QuarantineMetrics(retention, metrics)
    north, south = [(await TenantStore(database).create(ALL, name)).uid for name in ("North", "South")]
    writer = QuarantineWriter(Vault(FilesystemStore(tmp_path), KeyRing.of(b"k" * 64)), store, RetentionDays())
    kept = [await writer.hold(finished(tenant), Spooled.of(RAW)) for tenant in (north, north, south)]

    async def values() -> dict[str, float]:
        await gauges.measure()
        names = ("messages", "bytes", "messages_missing", "release_waiting_seconds")
        return {name: metrics.registry.get_sample_value(f"mailwarden_quarantine_{name}") or 0.0 for name in names}

    nothing = {"messages_missing": 0, "release_waiting_seconds": 0}
    assert await values() == {"messages": 3, "bytes": 3 * len(RAW), **nothing}
    await store.request_release(ALL, kept[0], None, Actor("test"))
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE quarantine_recipients SET changed_at = now() - $1::interval", timedelta(hours=1)
        )
    assert 3600 <= (await values())["release_waiting_seconds"] < 3700
    for lost in kept[:2]:
        await ReleaseStore(database).set_missing(ALL, await store.find(ALL, lost), missing=True)
    assert (await values())["messages_missing"] == 2
    await store.delete(ALL, kept[1], None, Actor("test"))
    found = await values()
    assert (found["messages"], found["messages_missing"]) == (2, 1), "a deleted message is not missing"

    of_south = await retention.totals(Scope.of(south))
    assert (of_south.messages, of_south.waiting_seconds, of_south.missing) == (1, 0, 0)
    await database.close()
