"""Sixty-four callers on the same lists: no deadlock, no 5xx, and every count as a model has it."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from rig.engines import Engines
from tests.faults.conftest import STEADY, Note, Start
from tests.faults.list_calls import (
    FULL,
    NO_RATE_LIMIT,
    ListAnswer,
    ListCaller,
    deadlocks,
    make_key,
    make_tenants,
    open_session,
    percentile,
    rows_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.long]

CLIENTS = 64
SECONDS = 60.0 if FULL else 3.0
HOT = "sender-block"
LISTS = (HOT, "url-block", "sender-allow", "protected-domains")
OWN = [f"{number:03}" for number in range(100)]
SHARED = [f"n{number:03}.shared.example" for number in range(400)]
SMALL, ROOM = "attachment-block", 1_000

Place = tuple[str | None, str]


@dataclass(slots=True)
class Tally:
    """What all callers were told, list by list."""

    calls: int = 0
    lines: int = 0
    seconds: list[float] = field(default_factory=list)
    own_added: Counter[Place] = field(default_factory=Counter)
    own_deleted: Counter[Place] = field(default_factory=Counter)
    shared_deleted: Counter[Place] = field(default_factory=Counter)
    comments: set[str] = field(default_factory=set)

    def note(self, answer: ListAnswer) -> ListAnswer:
        self.calls += 1
        self.seconds.append(answer.seconds)
        return answer

    def __str__(self) -> str:
        p50, p99, most = (percentile(self.seconds, part) * 1000 for part in (0.5, 0.99, 1.0))
        return f"{self.calls} calls, {self.lines} lines streamed, p50 {p50:.0f} p99 {p99:.0f} max {most:.0f} ms"


class Client:
    """One caller: it alone changes its own entries, so it knows them; the shared ones everybody changes."""

    def __init__(self, number: int, scopes: Sequence[ListCaller], tally: Tally) -> None:
        self.number = number
        self.owned: dict[Place, dict[str, str]] = {}
        self._scopes = scopes
        self._tally = tally
        self._chance = random.Random(number)
        self._turn = 0

    async def act(self) -> None:
        """Make one call, mostly on the one list that everybody uses, and compare its answer with the model."""
        self._turn += 1
        hot = self._chance.random() < 0.5
        caller = self._scopes[0] if hot else self._chance.choice(self._scopes)
        name = HOT if hot else self._chance.choice(LISTS)
        act = self._chance.choices((self._add, self._delete, self._read), (5, 4, 1))[0]
        await act(caller, name)

    def own(self, *numbers: str) -> list[str]:
        return [f"c{self.number}x{number}.own.example" for number in numbers]

    def _chosen(self) -> tuple[list[str], list[str]]:
        """Choose entries of both kinds, in any order."""
        own = self._chance.sample(self.own(*OWN), self._chance.randrange(len(OWN) + 1))
        few = self._chance.choice((0, 5, 50, 390))
        return own, self._chance.sample(SHARED, few)

    async def _add(self, caller: ListCaller, name: str) -> None:
        own, shared = self._chosen()
        comment = f"by {self.number} in turn {self._turn}"
        self._tally.comments.add(comment)
        again = [entry.upper() + "." for entry in own[:3]]  # the same entries, spelled otherwise
        mixed = own + shared
        self._chance.shuffle(mixed)
        answer = self._tally.note(await caller.add(name, [*mixed, *again], comment))
        sent = len(set(mixed))
        assert answer.modified == sent, f"{answer}, the model has {sent}"
        place = caller.tenant, name
        kept = self.owned.setdefault(place, {})
        self._tally.own_added[place] += len(set(own) - set(kept))
        kept.update(dict.fromkeys(own, comment))

    async def _delete(self, caller: ListCaller, name: str) -> None:
        place = caller.tenant, name
        own, shared = self._chosen()
        mixed = own + shared + ["no entry at all", "never.added.example"]
        self._chance.shuffle(mixed)
        answer = self._tally.note(await caller.delete(name, mixed))
        kept = self.owned.setdefault(place, {})
        gone = [entry for entry in own if kept.pop(entry, None) is not None]
        surplus = answer.modified - len(gone)
        assert 0 <= surplus <= len(shared), f"{answer}, the model has {len(gone)} to {len(gone) + len(shared)}"
        self._tally.own_deleted[place] += len(gone)
        self._tally.shared_deleted[place] += surplus

    async def _read(self, caller: ListCaller, name: str) -> None:
        lines = self._tally.note(await caller.stream(name)).lines
        self._tally.lines += len(lines)
        mine = f"c{self.number}x"
        seen = {line.entry: line.comment for line in lines if line.entry.startswith(mine)}
        assert seen == self.owned.get((caller.tenant, name), {}), "its own entries are not as it left them"


@pytest.mark.contract("4 concurrency")
@pytest.mark.parametrize("connections", [4, 32])
async def test_64_callers_change_and_stream_the_same_lists_and_every_count_is_right(
    connections: int, start_own_product: Start, note: Note, restored_engines: Engines, database_url: str
) -> None:
    product = start_own_product(
        STEADY, abby={**NO_RATE_LIMIT, "database": {"url": database_url, "poolSize": connections}}
    )
    tenants = await make_tenants(database_url, {"acme": "acme.example", "club": "club.example"})
    key = await make_key(product, database_url, "stress")
    tally = Tally()
    async with open_session(product) as session:
        scopes = [ListCaller(session, product.url, key, tenant) for tenant in (None, *tenants.values())]
        clients = [Client(number, scopes, tally) for number in range(CLIENTS)]
        end = time.monotonic() + SECONDS

        async def act_on(client: Client) -> None:
            while time.monotonic() < end:
                await client.act()

        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(act_on(client))
        kept = {(caller.tenant, name): (await caller.stream(name)).lines for caller in scopes for name in LISTS}
    note(f"{CLIENTS} callers for {SECONDS:.0f} s over {connections} connections: {tally}")
    rows = counts_of(restored_engines, database_url)
    for place, lines in kept.items():
        owned = {entry: comment for client in clients for entry, comment in client.owned.get(place, {}).items()}
        shared = {line.entry: line.comment for line in lines if line.entry.endswith(".shared.example")}
        assert {line.entry: line.comment for line in lines} == {**owned, **shared}
        assert set(shared.values()) <= tally.comments
        counter, entries, added, deleted = rows.get((place[0] or "", place[1]), (0, 0, 0, 0))
        assert counter == entries == len(lines)
        assert deleted == tally.own_deleted[place] + tally.shared_deleted[place]
        assert added - tally.own_added[place] - tally.shared_deleted[place] == len(shared)
    assert deadlocks(restored_engines, database_url) == 0


def counts_of(engines: Engines, database_url: str) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    """Return for each list its counter, its rows, and what the audit says was added and deleted."""
    query = """
        SELECT coalesce(tenant::text, ''), name, entries,
               (SELECT count(*) FROM list_entries WHERE list_entries.list_id = lists.list_id),
               (SELECT coalesce(sum((details->>'added')::int), 0) FROM audit
                WHERE action = 'lists.add' AND subject = name AND audit.tenant IS NOT DISTINCT FROM lists.tenant),
               (SELECT coalesce(sum((details->>'deleted')::int), 0) FROM audit
                WHERE action = 'lists.delete' AND subject = name AND audit.tenant IS NOT DISTINCT FROM lists.tenant)
        FROM lists
    """
    found = rows_of(engines, database_url, query)
    return {(row[0], row[1]): (int(row[2]), int(row[3]), int(row[4]), int(row[5])) for row in found}


@pytest.mark.contract("4 maxSize")
async def test_a_small_list_that_64_callers_fill_and_empty_holds_its_max_size_and_never_more(
    start_own_product: Start, note: Note, restored_engines: Engines, database_url: str
) -> None:
    product = start_own_product(STEADY, abby={**NO_RATE_LIMIT, "database": {"url": database_url, "poolSize": 32}})
    tenants = await make_tenants(database_url, {"acme": "acme.example"})
    key = await make_key(product, database_url, "filler")
    tally, refused, most = Tally(), 0, 0
    owned: dict[int, set[str]] = {number: set() for number in range(CLIENTS)}
    end = time.monotonic() + SECONDS / 2
    async with open_session(product) as session:
        caller = ListCaller(session, product.url, key, tenants["acme"])

        async def add(number: int, entries: Sequence[str]) -> bool:
            """Add a client's own entries; tell whether there was room for all of them."""
            nonlocal refused
            answer = tally.note(await caller.add(SMALL, entries, "x"))
            if answer.status == 409:
                assert answer.error == "list_full"
                refused += 1
                return False
            assert answer.modified == len(entries)
            owned[number].update(entries)
            return True

        async def fill(number: int) -> None:
            nonlocal most
            chance = random.Random(number)
            names = [f".c{number}x{n}" for n in range(40)]
            while time.monotonic() < end:
                await add(number, chance.sample(names, chance.randrange(1, 26)))
                if chance.random() < 0.3:
                    chosen = chance.sample(names, 10)
                    gone = len(owned[number] & set(chosen))
                    assert tally.note(await caller.delete(SMALL, chosen)).modified == gone
                    owned[number] -= set(chosen)
                if chance.random() < 0.1:
                    entries = {line.entry for line in tally.note(await caller.stream(SMALL)).lines}
                    most = max(most, len(entries))
                    assert {entry for entry in entries if entry.startswith(f".c{number}x")} == owned[number]
            for extra in range(ROOM):
                if not await add(number, [f".c{number}e{extra}"]):
                    break

        async with asyncio.TaskGroup() as group:
            for number in owned:
                group.create_task(fill(number))
        kept = {line.entry for line in (await caller.stream(SMALL)).lines}
        assert kept == set().union(*owned.values())
        assert len(kept) == ROOM
        assert (await caller.add(SMALL, sorted(kept)[:500], "an update needs no room")).modified == 500
        assert (await caller.add(SMALL, [*sorted(kept)[:499], ".onemore"], "x")).error == "list_full"
    assert most <= ROOM
    counter, rows, _, _ = counts_of(restored_engines, database_url)[tenants["acme"], SMALL]
    assert counter == rows == ROOM
    note(f"a list of {ROOM}: {tally}, {refused} refused as full, at most {most} entries seen on the way")
    assert deadlocks(restored_engines, database_url) == 0
