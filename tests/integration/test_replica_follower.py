"""The replica fed from a real PostgreSQL: copied whole, and followed in any order of commits."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest
import structlog

from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.pool import Database, scoped
from mailwarden.errors import StorageUnavailable
from mailwarden.lists.replica.file import ReplicaFolder
from mailwarden.lists.replica.follower import Follower, can_follow, purge_changes, snapshot
from mailwarden.lists.replica.matcher import Replica
from mailwarden.lists.requests import AddEntries
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Actor, Scope
from mailwarden.telemetry.metrics import Metrics
from mailwarden.wire.strict_json import convert

GLOBAL = ListScope()
SOAR = Actor("key:soar", "192.0.2.7", "request-1")

MakeFollower = Callable[..., tuple[Follower, Replica]]


@pytest.fixture
async def lists(database: Database) -> ListService:
    return ListService(ListStore(database, database))


@pytest.fixture
async def acme(database: Database) -> UUID:
    return (await TenantStore(database).create(Scope.deployment(), "acme")).uid


@pytest.fixture
async def make_feed(database: Database, tmp_path: Path) -> AsyncIterator[MakeFollower]:
    made: list[tuple[Follower, Replica]] = []

    def make(folder: str = "lists", source: Database = database) -> tuple[Follower, Replica]:
        replica = Replica(tmp_path / folder, look=0.0)
        feed = Follower(tmp_path / folder, replica, source, source, Metrics())
        made.append((feed, replica))
        return feed, replica

    yield make
    for feed, replica in made:
        await feed.stop()
        replica.close()


async def add(lists: ListService, scope: ListScope, name: str, *entries: object) -> None:
    given = [{"entry": entry} if isinstance(entry, str) else entry for entry in entries]
    await lists.add_entries(scope, name, convert({"listName": name, "entries": given}, AddEntries).entries, SOAR)


def met(replica: Replica, tenant: UUID, name: str, *candidates: str) -> list[str]:
    return [match.entry for match in replica.match(tenant, {name: candidates})]


async def test_a_whole_copy_and_the_changes_after_it(lists: ListService, acme: UUID, make_feed: MakeFollower) -> None:
    await add(lists, GLOBAL, "url-block", "a.example", {"entry": "b.example", "comment": 'why "b"'})
    await add(lists, ListScope(acme), "ip-block", "192.0.2.0/24")
    feed, replica = make_feed()
    await feed.step()
    found = replica.match(acme, {"url-block": ["a.example", "b.example"], "ip-block": ["192.0.2.0/24"]})
    assert [(each.entry, each.tenant, each.comment) for each in found] == [
        ("a.example", None, ""),
        ("b.example", None, 'why "b"'),
        ("192.0.2.0/24", acme, ""),
    ]
    await add(lists, GLOBAL, "url-block", {"entry": "c.example", "comment": 'why "b"'})
    await add(lists, GLOBAL, "url-block", {"entry": "b.example", "expires": "2001-01-01T00:00:00Z"})
    await add(lists, ListScope(acme), "ip-block", "198.51.0.0/16")
    await lists.delete_entries(GLOBAL, "url-block", ["a.example"], SOAR)
    await feed.step()
    assert met(replica, acme, "url-block", "a.example", "b.example", "c.example") == ["c.example"]
    assert replica.match(acme, {"url-block": ["c.example"]})[0].comment == 'why "b"'
    assert replica.prefix_lengths(acme, "ip-block").ipv4 == (24, 16)
    assert replica.entries == 4
    assert replica.lag_seconds is not None
    assert replica.lag_seconds < 5


async def test_changes_that_commit_in_another_order_than_they_began_are_not_lost(
    lists: ListService, database_url: str, acme: UUID, make_feed: MakeFollower
) -> None:
    feed, replica = make_feed()
    await add(lists, GLOBAL, "url-block", "first.example")
    await feed.step()
    early = await asyncpg.connect(database_url)
    transaction = early.transaction()
    await transaction.start()
    await early.execute("SET LOCAL mailwarden.scope = 'global'")
    await early.execute(
        "INSERT INTO list_entries (list_id, entry, comment, created, created_by, updated, updated_by)"
        " SELECT list_id, 'early.example', '\"\"', '', '\"\"', '', '\"\"' FROM lists"
    )
    await early.execute("INSERT INTO list_changes (list_id, entries) SELECT list_id, '{early.example}' FROM lists")
    await add(lists, GLOBAL, "url-block", "late.example")
    await feed.step()
    # A younger change acts although an older one is not committed yet ...
    assert met(replica, acme, "url-block", "early.example", "late.example") == ["late.example"]
    await feed.step()
    await transaction.commit()
    await early.close()
    await feed.step()
    # ... and the older one is not passed over.
    assert met(replica, acme, "url-block", "early.example", "late.example") == ["early.example", "late.example"]


async def test_lists_of_a_deleted_tenant_no_longer_match(
    lists: ListService, database: Database, acme: UUID, make_feed: MakeFollower
) -> None:
    await add(lists, ListScope(acme), "url-block", "a.example")
    feed, replica = make_feed()
    await feed.step()
    assert replica.in_use(acme) == {"url-block"}
    async with database.connection() as connection, scoped(connection, "all"):
        await connection.execute("DELETE FROM tenants WHERE uid = $1", acme)
    await feed.step()
    assert replica.in_use(acme) == frozenset()
    assert replica.entries == 0


async def test_one_process_of_a_host_writes_and_another_takes_over(
    lists: ListService, acme: UUID, make_feed: MakeFollower
) -> None:
    first, _ = make_feed()
    second, replica = make_feed()
    await add(lists, GLOBAL, "url-block", "a.example")
    await first.step()
    await add(lists, GLOBAL, "url-block", "b.example")
    await second.step()
    assert met(replica, acme, "url-block", "a.example", "b.example") == ["a.example"]
    await first.stop()
    await second.step()
    assert met(replica, acme, "url-block", "a.example", "b.example") == ["a.example", "b.example"]


@pytest.mark.slow
async def test_changes_act_within_two_seconds_while_scans_read_and_others_write(
    lists: ListService, acme: UUID, make_feed: MakeFollower
) -> None:
    feed, replica = make_feed()
    second, other = make_feed("other")
    await feed.start(10.0)
    await second.start(10.0)
    took: list[float] = []
    for number in range(8):
        entries = [f"h{number}-{each}.example" for each in range(100)]
        await asyncio.gather(
            add(lists, GLOBAL, "url-block", *entries[:50]),
            add(lists, ListScope(acme), "url-block", *entries[50:]),
            lists.delete_entries(GLOBAL, "url-block", [f"h{number - 1}-0.example"], SOAR),
        )
        committed = time.monotonic()
        wanted = entries[50:] + entries[:50]
        while not (met(replica, acme, "url-block", *entries) == met(other, acme, "url-block", *entries) == wanted):
            assert time.monotonic() - committed < 20.0
            await asyncio.sleep(0.01)
        took.append(time.monotonic() - committed)
    assert statistics.median(took) < 2.0, took
    assert replica.entries == 8 * 100 - 7


async def test_hits_wait_while_the_database_is_down(acme: UUID, lists: ListService, make_feed: MakeFollower) -> None:
    await add(lists, GLOBAL, "url-block", "a.example")
    feed, _ = make_feed()
    await feed.step()
    away, replica = make_feed(source=Database("postgresql://nobody@127.0.0.1:1/nothing"))
    replica.note_hits(replica.match(acme, {"url-block": ["a.example"]}))
    await away.write_hits()
    assert [hit.count for hit in replica.hits.take().values()] == [1]


async def test_a_damaged_file_is_copied_again(
    lists: ListService, acme: UUID, make_feed: MakeFollower, tmp_path: Path
) -> None:
    await add(lists, GLOBAL, "url-block", "a.example")
    feed, replica = make_feed()
    await feed.step()
    ReplicaFolder(tmp_path / "lists").say_damaged()
    before = replica.loaded, list((tmp_path / "lists").glob("*.sqlite"))
    await feed.step()
    assert before[1] != list((tmp_path / "lists").glob("*.sqlite"))
    assert met(replica, acme, "url-block", "a.example") == ["a.example"]


async def test_a_replica_older_than_the_purged_changes_is_copied_again(
    lists: ListService, database: Database, make_feed: MakeFollower
) -> None:
    await add(lists, GLOBAL, "url-block", "a.example")
    await add(lists, GLOBAL, "url-block", "b.example")
    async with database.connection() as connection:
        await connection.execute("UPDATE list_changes SET changed = now() - interval '31 days' WHERE change = 1")
    assert await purge_changes(database) == 1
    assert await purge_changes(database) == 0
    async with snapshot(database) as state:
        now = state.position
    assert can_follow(now, now)
    assert not can_follow(type(now)(now.source, now.snapshot, now.moment - 3 * 86_400), now)
    assert not can_follow(type(now)("elsewhere", now.snapshot, now.moment), now)
    assert not can_follow(type(now)(now.source, "99999999:99999999:", now.moment), now)


async def test_a_copy_without_a_database_is_not_logged_as_started(make_feed: MakeFollower):
    """Asked three times a second: the log of an outage would be nothing else."""
    away = Database("postgresql://mailwarden@127.0.0.1:9/none")
    feed, _ = make_feed("new", away)
    with structlog.testing.capture_logs() as lines, pytest.raises(StorageUnavailable):
        await feed.step()
    await away.close()
    assert [line["event"] for line in lines] == []
