"""Two tenants call everything there is, thousands of times: neither is told a byte of the other."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from mailwarden.database.pool import Database, scoped
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore, Reading
from mailwarden.model.scope import Actor
from tests.faults.conftest import STEADY, Note
from tests.faults.list_calls import FULL, NO_RATE_LIMIT, make_tenants
from tests.faults.two_tenants import LISTS, NOBODY, Side, TenantPair
from workshop.rig.engines import Engines
from workshop.rig.product import install_product

pytestmark = pytest.mark.slow

STEPS = 10_000 if FULL else 400
STEPS_IN_A_ROW = 50

sides = st.sampled_from((0, 1))
names = st.sampled_from(LISTS)
chosen = st.lists(st.integers(0, 12), min_size=1, max_size=12)
operations = st.sampled_from(("addEntries", "deleteEntries", "getLists", "listEntries"))
numbers = st.integers(0, 1_000_000)


class TwoTenants(RuleBasedStateMachine):
    """Each rule is one call or two; what each tenant should find is kept in `pair`, over all runs."""

    pair: TenantPair

    def side(self, number: int) -> Side:
        self.pair.steps += 1
        return self.pair.sides[number]

    @rule(number=sides, name=names, chosen=chosen, remark=st.text("ab", max_size=5))
    def add(self, number: int, name: str, chosen: list[int], remark: str) -> None:
        side = self.side(number)
        comment = f"{side.marker} {remark}"
        entries = [side.choices[index] for index in chosen]
        records = [{"entry": entry, "comment": comment} for entry in entries]
        answer = self.pair.lists(side, "addEntries", listName=name, entries=records)
        assert json.loads(answer.body) == {"modifiedEntries": len(set(entries))}
        side.entries[name].update(dict.fromkeys(entries, comment))

    @rule(number=sides, name=names, chosen=chosen)
    def delete(self, number: int, name: str, chosen: list[int]) -> None:
        side = self.side(number)
        entries = [side.choices[index] for index in chosen]
        answer = self.pair.lists(side, "deleteEntries", listName=name, entries=entries)
        gone = [side.entries[name].pop(entry, None) for entry in set(entries)]
        assert json.loads(answer.body) == {"modifiedEntries": len(gone) - gone.count(None)}

    @rule(number=sides, name=names)
    def stream(self, number: int, name: str) -> None:
        side = self.side(number)
        answer = self.pair.lists(side, "listEntries", listName=name)
        lines = [json.loads(line) for line in answer.body.splitlines()]
        assert {line["entry"]: line["comment"] for line in lines} == side.entries[name]
        assert int(answer.headers["X-Entry-Count"]) == len(lines) == len(side.entries[name])
        assert all(side.marker in line["createdBy"] and side.marker in line["updatedBy"] for line in lines)

    @rule(number=sides)
    def show_lists(self, number: int) -> None:
        assert self.pair.lists(self.side(number), "getLists").status == 200

    @rule(number=sides, operation=operations)
    def use_a_key_without_the_scope(self, number: int, operation: str) -> None:
        key = "read" if operation in ("addEntries", "deleteEntries") else "write"
        answer = self.pair.lists(self.side(number), operation, key=key, **self.body(operation))
        assert answer.outcome == (403, "forbidden")

    @rule(number=sides, operation=operations)
    def name_no_tenant(self, number: int, operation: str) -> None:
        answer = self.pair.lists(self.side(number), operation, tenant=None, **self.body(operation))
        assert answer.outcome == (403, "global_scope_forbidden")

    @rule(number=sides, operation=operations)
    def name_another_tenant(self, number: int, operation: str) -> None:
        side = self.side(number)
        body = self.body(operation)
        there = self.pair.lists(side, operation, tenant=self.pair.other(side).uid, **body)
        nowhere = self.pair.lists(side, operation, tenant=NOBODY, **body)
        assert there.outcome == (403, "tenant_forbidden")
        assert there.body == nowhere.body  # so that nobody learns which tenants exist

    @rule(number=sides, name=names, wrong=st.sampled_from(("*", "no such thing", "a b@c", "co.uk")))
    def send_what_is_no_entry(self, number: int, name: str, wrong: str) -> None:
        side = self.side(number)
        records = [{"entry": entry} for entry in (*side.choices, wrong)]
        answer = self.pair.lists(side, "addEntries", listName=name, entries=records)
        assert answer.status == 422
        assert self.pair.lists(side, "listEntries", listName=f"{name}-x").outcome == (404, "list_not_found")

    @rule(number=sides)
    def mix_credentials_up(self, number: int) -> None:
        side = self.side(number)
        for path in ("/v1/admin/status", "/api/public/lists/v1/getLists"):
            wrong = f"apikey {side.keys['both']}" if path.startswith("/v1") else f"Bearer {side.token}"
            headers = {"Authorization": wrong, "Content-Type": "application/json"}
            answer = self.pair.ask(side, "POST", path, headers=headers, data=b"{}")
            assert answer.outcome == (401, "invalid_credentials")

    @rule(name=names, index=st.integers(0, 5))
    def change_a_global_list(self, name: str, index: int) -> None:
        self.pair.steps += 1
        whole = self.pair.deployment
        record = {"entry": f"e{index}.{whole.marker}.example", "comment": whole.marker}
        answer = self.pair.lists(whole, "addEntries", tenant=None, listName=name, entries=[record])
        assert json.loads(answer.body) == {"modifiedEntries": 1}

    @rule(number=sides)
    def submit(self, number: int) -> None:
        side = self.side(number)
        assert self.pair.submit(side, recipient=f"bob@{side.domain}").status == 200

    @rule(number=sides)
    def submit_for_its_tenant(self, number: int) -> None:
        side = self.side(number)
        assert self.pair.submit(side, recipient=f"bob@{side.domain}", tenant=side.uid).status == 200

    @rule(number=sides)
    def submit_under_a_key_that_the_other_uses(self, number: int) -> None:
        side = self.side(number)
        answer = self.pair.submit(side, recipient=f"bob@{side.domain}", repeat="again")
        assert answer.status == 200 or answer.outcome == (409, "idempotency_conflict")

    @rule(number=sides, named=st.booleans())
    def submit_to_another_tenant(self, number: int, named: bool) -> None:
        side = self.side(number)
        other = self.pair.other(side)
        recipient = f"bob@{side.domain if named else other.domain}"
        answer = self.pair.submit(side, recipient=recipient, tenant=other.uid if named else None)
        assert answer.outcome == (403, "tenant_forbidden")

    @rule(number=sides, index=numbers, foreign=st.integers(0, 5))
    def explain(self, number: int, index: int, foreign: int) -> None:
        side = self.side(number)
        theirs = foreign == 0  # rarely: a message that is not found is looked for a moment
        ggrids = self.pair.other(side).ggrids if theirs else side.ggrids
        if ggrids:
            answer = self.pair.read(side, f"/v1/messages/{ggrids[index % len(ggrids)]}")
            assert answer.status == (404 if theirs else 200)
            assert theirs or side.marker.encode() in answer.body

    @rule(
        number=sides,
        what=st.sampled_from(
            (
                ("POST", "/v1/admin/status"),
                ("GET", "/metrics"),
                ("GET", "/v1/catalogue"),
                ("GET", "/openapi.json"),
                ("GET", "/readyz"),
                ("GET", "/v1/nowhere"),
            )
        ),
    )
    def look_at_the_rest(self, number: int, what: tuple[str, str]) -> None:
        method, path = what
        assert self.pair.read(self.side(number), path, method).status in (200, 404)

    def body(self, operation: str) -> dict[str, Any]:
        entry = "n1.common.example"
        listed: dict[str, Any] = {"listName": "sender-block"}
        if operation == "addEntries":
            return {**listed, "entries": [{"entry": entry}]}
        return (
            {}
            if operation == "getLists"
            else {**listed, "entries": [entry]}
            if operation == "deleteEntries"
            else listed
        )


@pytest.mark.contract("4 scope", "5 tenant_forbidden", "5 global_scope_forbidden")
def test_no_answer_to_a_tenant_holds_a_byte_of_another(
    restored_engines: Engines, database_url: str, tmp_path: Path, note: Note
) -> None:
    product = install_product(tmp_path, restored_engines, database_url, guards=(STEADY,), abby=NO_RATE_LIMIT)
    pair = TenantPair(product)
    asyncio.run(pair.settle(database_url))
    with product:
        product.start()
        for side in pair.sides:
            assert pair.submit(side, recipient=f"bob@{side.domain}").status == 200
        TwoTenants.pair = pair
        began = time.monotonic()
        while pair.steps < STEPS:
            left = STEPS - pair.steps
            run_state_machine_as_test(
                TwoTenants,
                settings=settings(
                    max_examples=max(1, left // STEPS_IN_A_ROW),
                    stateful_step_count=STEPS_IN_A_ROW,
                    phases=(Phase.generate,),
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        seconds = time.monotonic() - began
    messages = sum(len(side.ggrids) for side in pair.sides)
    note(
        f"two tenants: {pair.steps} steps in {seconds:.0f} s, {messages} messages, "
        f"{pair.answers} answers of {pair.bytes:,} bytes, not one of the other"
    )


@pytest.mark.contract("4 scope")
async def test_row_level_security_blocks_access_without_the_service(database_url: str) -> None:
    tenants = await make_tenants(database_url, {"acme": "acme.example", "club": "club.example"})
    acme, club = ListScope(UUID(tenants["acme"])), ListScope(UUID(tenants["club"]))
    definition, actor = find_list("sender-block"), Actor("key:test")
    database = Database(database_url, 2)
    try:
        store = ListStore(database, database)
        service = ListService(store)
        await service.add_entries(club, definition.name, [ListEntryInput("secret.example", comment="club's")], actor)
        async with database.connection() as connection, scoped(connection, club.setting):
            theirs = cast("int", await connection.fetchval("SELECT list_id FROM lists"))
        async with database.connection() as connection:
            assert await connection.fetch("SELECT FROM list_entries") == [], "a transaction that did not say its scope"
            async with scoped(connection, acme.setting):
                for table in ("lists", "list_entries"):
                    assert await connection.fetch(f"SELECT FROM {table} WHERE list_id = {theirs}") == []
                    assert await connection.execute(f"DELETE FROM {table} WHERE list_id = {theirs}") == "DELETE 0"
                lines: list[bytes] = []
                await Reading(connection, definition, theirs, 1).copy_to(collector(lines))
                assert b"".join(lines) == b""
            with pytest.raises(asyncpg.PostgresError, match="the list is gone"):
                async with scoped(connection, acme.setting):
                    await connection.execute(f"SELECT count_entries({theirs}, 1, 1000)")
        # Even a service that took the other's list for its own changes nothing in it.
        store._known[acme.tenant, definition.name] = theirs
        assert await service.delete_entries(acme, definition.name, ["secret.example"], actor) == 0
        assert await service.add_entries(acme, definition.name, [ListEntryInput("mine.example")], actor) == 1
        async with store.reading(club, definition) as reading:
            assert reading.count == 1
        async with store.reading(acme, definition) as reading:
            assert reading.count == 1
    finally:
        await database.close()


def collector(lines: list[bytes]) -> Callable[[bytes], Awaitable[None]]:
    async def collect(line: bytes) -> None:
        lines.append(line)

    return collect
