"""History of the fleet: two hosts with ClickHouse, and the rows that the fleet has in the end."""

import asyncio
import functools
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mailwarden.database.pool import Database
from mailwarden.errors import SearchTooBroad, StorageUnavailable
from mailwarden.history.clickhouse.client import Clickhouse as Client
from mailwarden.history.clickhouse.client import Target
from mailwarden.history.opening import open_history
from mailwarden.history.store import Cursor, HistoryStore, Page
from mailwarden.model.ggrid import moment_of
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.search.query import Query
from tests.fleet.edge import ABBY
from tests.fleet.topology import DATABASE, GUARD, ZOOKEEPER, Fleet, run_mailwarden
from tests.waiting import wait_until
from workshop.rig.clickhouse import Clickhouse, Ports, merge
from workshop.rig.process import RigError
from workshop.rig.product import Service

PORTS = Ports(http=8123, native=9000, interserver=9009)
USER = "default"
ASK_SECONDS = 3.0
EQUAL_SECONDS = 60.0  # until both replicas have the same rows, and each once
MAX_DELAY = 5  # seconds that a replica may be behind while rows come in
PAGE = 200
RETRY_SECONDS = 1.0
# Of one replica: whether it takes no rows, how many replicas it sees, and by how many seconds it is behind.
_STATE = "SELECT is_readonly, active_replicas, absolute_delay FROM system.replicas WHERE table = 'history'"
_WAITING = "SELECT queue_size FROM system.replicas WHERE table = 'history'"
# Without parts that ZooKeeper does not have: the replica lost it during an insert, and discards them minutes later.
_ROWS = (
    "SELECT hex(ggrid), hex(tenant), count() FROM history WHERE _part IN (SELECT name FROM system.zookeeper "
    "WHERE path = '/clickhouse/tables/1/{database}/history/replicas/{replica}/parts') GROUP BY ggrid, tenant"
)

Key = tuple[UUID, UUID]  # ggrid and tenant
Table = Mapping[Key, int]  # how often a replica has a row


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The requests that a search finds on every replica, and the ggrids that only a part of the replicas has.

    `repeated` rows are there twice. `copies` were: a batch was written again, and a merge has removed them.
    """

    requests: Sequence[FinishedRequest]
    differing: Sequence[str] = ()
    repeated: int = 0
    copies: int = 0


def add_clickhouse(fleet: Fleet) -> None:
    """Add the hosts with ClickHouse; their ZooKeepers are on the hosts of the databases."""
    zookeepers = [f"{part.host.address}:{ZOOKEEPER}" for part in fleet.of_kind("db")]
    parts = fleet.of_kind("ch")
    for part in parts:
        folder = part.disk.folder / "clickhouse"
        server = Clickhouse(folder, part.name, host=part.host.address, ports=PORTS, zookeepers=zookeepers)
        part.stages = [[server]]
        part.well = functools.partial(_is_replica, server, len(parts))
        fleet.clickhouses.append(server)


def _is_replica(server: Clickhouse, replicas: int) -> bool:
    """Return whether it takes rows, sees the other one, and is not behind."""
    state = [int(word) for word in server.execute(_STATE, seconds=ASK_SECONDS).split()]
    return bool(state) and state[:2] == [0, replicas] and state[2] <= MAX_DELAY


def prepare_history(fleet: Fleet) -> None:
    """Name ClickHouse in the configuration that abbys and guards copy, and create its tables."""
    folder = fleet.root / "config"
    urls = [server.address for server in fleet.clickhouses]
    settings = {"store": "clickhouse", "clickhouse": {"urls": urls, "user": USER, "replicated": True}}
    for kind, port in (("abby", ABBY), ("guard", GUARD)):
        Service(kind, kind, folder, port).configure({"history": settings})
    run_mailwarden("history", "prepare", "--config", str(folder))


def read_history(fleet: Fleet, since: datetime) -> StoredRows:
    """Return the rows since a moment, and compare the replicas when they have fetched everything from each other."""
    if not fleet.clickhouses:
        requests = asyncio.run(_search(fleet, None, since))
        return StoredRows(requests, repeated=_repeated(requests))
    settled = wait_until(lambda: _are_settled(fleet), EQUAL_SECONDS, 0.5)
    tables = _tables(fleet)
    found = [asyncio.run(_search(fleet, server, since)) for server in fleet.clickhouses]
    # What a search does not find is not there.
    seen = [set(map(_key, requests)) for requests in found]
    recent = [{key for key in table if _is_since(key, since)} for table in tables]
    differing = _differing([table.keys() for table in tables]) | _differing([*seen, *recent])
    copies = max(map(_copies, tables))
    if copies:
        wait_until(lambda: _are_merged(fleet), EQUAL_SECONDS, 0.5)
    repeated = sum(map(_copies, _tables(fleet))) + sum(map(_repeated, found))
    on_all = set.intersection(*seen)
    requests = [request for request in found[0] if _key(request) in on_all]
    unsettled = [] if settled else ["a replica still waits for rows"]
    return StoredRows(requests, [*unsettled, *sorted(map(str, differing))], repeated, copies)


def _are_settled(fleet: Fleet) -> bool:
    try:
        return all(server.execute(_WAITING, seconds=ASK_SECONDS) == "0" for server in fleet.clickhouses)
    except (OSError, RigError):
        return False


def _are_merged(fleet: Fleet) -> bool:
    merge(fleet.clickhouses, "history", DATABASE)
    return not any(map(_copies, _tables(fleet)))


def _tables(fleet: Fleet) -> list[Table]:
    """Return the rows as they stand in the table of each replica."""
    servers = fleet.clickhouses
    answers = [server.execute(_ROWS.format(database=DATABASE, replica=server.name), DATABASE) for server in servers]
    return [dict(map(_row, answer.splitlines())) for answer in answers]


def _row(line: str) -> tuple[Key, int]:
    ggrid, tenant, count = line.split("\t")
    return (UUID(ggrid), UUID(tenant)), int(count)


def _copies(table: Table) -> int:
    return sum(table.values()) - len(table)


def _differing(sets: Sequence[Set[Key]]) -> set[UUID]:
    """Return the ggrids that are in some of the sets alone."""
    return {ggrid for ggrid, _ in set().union(*sets) - set(sets[0]).intersection(*sets)}


def _is_since(key: Key, since: datetime) -> bool:
    moment = moment_of(key[0])
    return moment is not None and moment >= since


async def _search(fleet: Fleet, server: Clickhouse | None, since: datetime) -> list[FinishedRequest]:
    """Return what the product shows, from one replica if history is in ClickHouse."""
    database = Database(fleet.primary_url)
    client = Client(Target((f"{server.address}/",), DATABASE, USER)) if server else None
    try:
        return await _read_pages(open_history(database, clickhouse=client), Query(since=since))
    finally:
        if client:
            await client.close()
        await database.close()


async def _read_pages(store: HistoryStore, query: Query) -> list[FinishedRequest]:
    found: list[FinishedRequest] = []
    place: Cursor | None = None
    while True:
        page = await _read_page(store, query, place)
        found += [row.request for row in page.rows if row.request]
        place = page.next
        if place is None:
            return found


async def _read_page(store: HistoryStore, query: Query, place: Cursor | None) -> Page:
    """Return a page; a busy machine may need longer for it than a search waits."""
    end = time.monotonic() + EQUAL_SECONDS
    while True:
        try:
            return await store.search(Scope.deployment(), query, place, PAGE)
        except (StorageUnavailable, SearchTooBroad):
            if time.monotonic() > end:
                raise
            await asyncio.sleep(RETRY_SECONDS)


def _key(request: FinishedRequest) -> Key:
    return request.ggrid, request.tenant


def _repeated(requests: Sequence[FinishedRequest]) -> int:
    return len(requests) - len(set(map(_key, requests)))
