"""The primary of a PostgreSQL cluster is killed under list changes and scans: no acknowledged change is lost.

A second before each kill the primary stops sending changes to the other hosts. With synchronous mode no change is
acknowledged from then on. Without it, changes go on being acknowledged and are lost: the second test shows that this
file notices.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import STEADY, Note
from tests.faults.list_calls import NO_RATE_LIMIT, ListCaller, make_key, open_session
from tests.faults.list_ledger import CHANGES, ENTRIES, Ledger, counts
from tests.faults.load import Load, submitting
from workshop.rig.engines import Engines
from workshop.rig.patroni import Cluster, start_cluster
from workshop.rig.product import Product, install_product

KILLS = int(os.environ.get("KILLS", "5"))
WRITERS = 8
SIZE = 50
FAILOVER_SECONDS = 90.0
HOLD_SECONDS = 1.0  # between the end of replication and the kill
SCAN_SECONDS = 30.0  # a scan never waits for a failover

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    pytest.mark.long,
]


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with start_cluster(synchronous=getattr(request, "param", True)) as running:
        yield running


@pytest.fixture
def product(engines: Engines, cluster: Cluster, tmp_path: Path) -> Iterator[Product]:
    url = cluster.create_database("mailwarden")
    pooler = {"database": {"url": url, "pooler": "transaction"}}
    with install_product(
        tmp_path, engines, url, guards=({**STEADY, **pooler},), abby={**NO_RATE_LIMIT, **pooler}
    ) as installed:
        for guard in installed.guards:
            guard.start()
        installed.start()
        yield installed


async def wait_for_writes(ledger: Ledger, count: int) -> None:
    wanted = len(ledger.acknowledged) + count
    async with asyncio.timeout(FAILOVER_SECONDS):
        while len(ledger.acknowledged) < wanted:
            await asyncio.sleep(0.02)


async def kill_primaries(cluster: Cluster, ledger: Ledger, kills: int) -> list[float]:
    """Kill the primary again and again; return how long each time no write was acknowledged."""
    outages = []
    for _ in range(kills):
        await wait_for_writes(ledger, 20)
        primary = await asyncio.to_thread(cluster.primary)
        assert primary is not None
        await asyncio.to_thread(primary.hold_replication)
        await asyncio.sleep(HOLD_SECONDS)
        killed = time.monotonic()
        await asyncio.to_thread(primary.kill)
        await asyncio.sleep(1.0)  # for the answers of commits that were done before the kill
        gone = time.monotonic()
        await wait_for_writes(ledger, 1)
        outages.append(min(moment for moment in ledger.acknowledged.values() if moment > gone) - killed)
        await asyncio.to_thread(primary.start)
        await asyncio.to_thread(cluster.wait)
    return outages


def found(cluster: Cluster) -> tuple[dict[str, int], dict[str, int]]:
    """Return the entries, and the changes, of each batch."""
    entries = cluster.execute(ENTRIES, "mailwarden")
    changes = cluster.execute(CHANGES, "mailwarden")
    return counts(entries), counts(changes)


async def write_while_killing(cluster: Cluster, product: Product, kills: int) -> tuple[Ledger, Load, list[float]]:
    """Kill primaries under list changes and scans; return both, and how long no change was acknowledged."""
    key = await make_key(product, cluster.direct_url("mailwarden"), "writer")
    ledger, stopped = Ledger(SIZE), asyncio.Event()
    async with submitting(product) as scans, open_session(product, patience=60.0) as session:
        writers = [
            asyncio.create_task(ledger.write_on(ListCaller(session, product.url, key), stopped)) for _ in range(WRITERS)
        ]
        outages = await kill_primaries(cluster, ledger, kills)
        stopped.set()
        await asyncio.gather(*writers)
    return ledger, scans, outages


async def test_no_acknowledged_list_change_is_lost_when_the_primary_is_killed(
    cluster: Cluster, product: Product, note: Note
) -> None:
    ledger, scans, outages = await write_while_killing(cluster, product, KILLS)
    entries, changes = found(cluster)
    lost = ledger.lost(entries)
    torn = [name for name in ledger.in_doubt if entries.get(name, 0) not in (0, SIZE)]
    doubled = [name for name, count in changes.items() if count > 1]
    slowest = max(outcome.ended - outcome.began for outcome in scans.outcomes)
    answered = sum(outcome.status == 200 for outcome in scans.outcomes)
    note(
        f"primary killed {KILLS} times: {len(ledger.acknowledged)} list changes acknowledged, {len(lost)} lost, "
        f"{len(torn)} partially applied, {len(doubled)} applied twice, {len(ledger.in_doubt)} answered 503; writes "
        f"went on after {', '.join(f'{seconds:.1f}' for seconds in outages)} s; {answered} of {len(scans.outcomes)} "
        f"scans answered, the slowest after {slowest:.1f} s"
    )
    assert not lost
    assert not torn
    assert not doubled
    assert answered == len(scans.outcomes)
    assert slowest < SCAN_SECONDS


@pytest.mark.parametrize("cluster", [False], indirect=True, ids=["asynchronous"])
async def test_lost_changes_are_noticed_without_synchronous_mode(
    cluster: Cluster, product: Product, note: Note
) -> None:
    ledger, _, _ = await write_while_killing(cluster, product, 1)
    entries, _ = found(cluster)
    lost = ledger.lost(entries)
    note(f"without synchronous mode: {len(ledger.acknowledged)} list changes acknowledged, {len(lost)} lost")
    assert lost, "the check for lost changes cannot fail"
