"""abby, guard and PostgreSQL killed under load: every committed change has one event, in order, and none is lost."""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from mailwarden.database.pool import Database
from mailwarden.events.catalogue import ListChanged
from tests.faults.conftest import STEADY, Note, Start
from tests.faults.event_load import LIST, EventClient, change_list, doubled, hold_messages
from tests.faults.list_calls import NO_RATE_LIMIT, ListCaller, make_key, make_tenants, open_session, rows_of
from tests.faults.load import PATIENCE, Load, caller_of, kill, start, submitting
from tests.integration.quarantine.quarantine_setup import QuarantineSetup
from workshop.rig.engines import Engines
from workshop.rig.product import Product

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "50" if os.environ.get("MAILWARDEN_FULL") == "1" else "3"))
Rows = Counter[tuple[str, ...]]
SEED = int(os.environ.get("SEED", "18"))


async def kill_by_turns(product: Product, engines: Engines, load: Load) -> Counter[str]:
    """Kill one of the three at a random moment, start it again, and wait until mail is delivered."""
    chance, killed = random.Random(SEED), Counter[str]()
    servers = [product.abby, product.guards[0], engines.postgresql]
    first = chance.sample(servers, 3)
    for turn in range(KILLS):
        server = first[turn] if turn < 3 else chance.choice(servers)
        await asyncio.sleep(chance.uniform(0.2, 1.2))
        await kill(server)
        killed[server.name] += 1
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        await start(server)
        await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
    return killed


async def read_rest(product: Product, client: EventClient) -> None:
    """Read until two pages in a row are empty."""
    async with caller_of(product) as caller:
        empty = 0
        while empty < 2:
            empty = 0 if await client.read(caller) else empty + 1


def lost_and_doubled(engines: Engines, database_url: str, client: EventClient) -> tuple[int, int]:
    """Compare the rows of the database with the events; return the changes, and those without exactly one event."""

    def rows(query: str) -> Rows:
        return Counter(tuple(row) for row in rows_of(engines, database_url, query))

    def uids(kind: str) -> Rows:
        return Counter((str(event.data["uid"]),) for event in client.of(kind))

    judged: Rows = Counter((event.subject, str(event.tenant_uid)) for event in client.of("message.scanned"))
    lists: Rows = Counter(
        (each.action, str(each.added + each.updated + each.deleted), str(each.added), str(each.deleted))
        for each in (msgspec.convert(event.data, ListChanged) for event in client.of("list.changed"))
    )
    deleted = "SELECT DISTINCT message FROM quarantine_recipients WHERE state = 'deleted'"
    pairs: Sequence[tuple[Rows, Rows]] = (
        (rows("SELECT ggrid, tenant FROM history"), judged),
        (rows("SELECT uid FROM quarantine"), uids("message.held")),
        (rows(deleted), uids("message.deleted")),
        (rows("SELECT action, touched, added, deleted FROM list_changes WHERE action <> ''"), lists),
    )
    wrong = sum(((rows - events) + (events - rows)).total() for rows, events in pairs)
    return sum(rows.total() for rows, _ in pairs), wrong


def out_of_order(engines: Engines, database_url: str, client: EventClient) -> dict[str, int]:
    """Count entries that a replay of the list's events gets wrong, and messages with a wrong order or time."""
    query = f"SELECT entry FROM list_entries JOIN lists USING (list_id) WHERE name = '{LIST}'"
    stored = {row[0] for row in rows_of(engines, database_url, query)}
    wrong = {"entries": len(client.mirrored() ^ stored), "deleted before held": 0, "times": 0}
    held: set[object] = set()
    latest: dict[str, datetime] = {}
    for event in client.events:
        if event.type == "message.held":
            held.add(event.data["uid"])
        elif event.type == "message.deleted":
            wrong["deleted before held"] += event.data["uid"] not in held
        if event.type.startswith("message."):  # changes of one list run beside each other: its times may differ a bit
            wrong["times"] += event.time < latest.get(event.subject, event.time)
            latest[event.subject] = event.time
    return wrong


async def test_every_committed_change_has_one_event_in_order(
    start_own_product: Start, note: Note, restored_engines: Engines, database_url: str, tmp_path: Path
) -> None:
    product = start_own_product(STEADY, abby=NO_RATE_LIMIT)
    key = await make_key(product, database_url, "writer")
    tenants = await make_tenants(database_url, {"north": "north.example", "south": "south.example"})
    client, stopped, database = EventClient(), asyncio.Event(), Database(database_url, 4)
    setup = QuarantineSetup(database, tmp_path / "held", [*map(UUID, tenants.values())])
    async with (
        open_session(product, patience=15.0) as session,
        caller_of(product) as reading,
        asyncio.TaskGroup() as group,
    ):
        lists = ListCaller(session, product.url, key)
        group.create_task(client.follow(reading, stopped))
        for writer in range(6):
            group.create_task(change_list(lists, writer, stopped))
        for writer in range(2):
            group.create_task(hold_messages(setup, writer, stopped))
        async with submitting(product, clients=4, retry=True) as load:
            await load.wait_for(lambda outcome: outcome.delivered, time.monotonic(), PATIENCE)
            killed = await kill_by_turns(product, restored_engines, load)
        stopped.set()
    await asyncio.to_thread(product.guards[0].stop)  # it writes its queue before it ends
    await read_rest(product, client)
    await database.close()
    changes, lost = lost_and_doubled(restored_engines, database_url, client)
    disordered = out_of_order(restored_engines, database_url, client)
    note(
        f"killed {dict(killed)}; {len(client.events)} events of all types, {client.duplicates} duplicates with "
        f"the same id, seed {SEED}"
    )
    events, wrong = changes - lost, sum(disordered.values())
    note(f"events: {KILLS} kills, {changes} changes, {events} events, {lost} lost, {wrong} out of order")
    assert doubled(client.of("message.scanned")) == []
    assert lost == 0
    assert not any(disordered.values()), disordered
    assert client.duplicates, "the client has processed some pages twice"
    assert changes > 20 * KILLS
