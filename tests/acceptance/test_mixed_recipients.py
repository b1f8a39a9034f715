"""One submitEmail with recipients of several tenants: decided for each, one row for each, and no data crosses."""

import asyncio
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore, Row
from mailwarden.model.scope import Scope
from mailwarden.search.query import parse_query
from tests.acceptance.client import Answer, Client, envelope
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_deployment, wait_for_lists
from tests.acceptance.mixed_calls import TENANTS, MixedCall, TenantLists, draw_call, leading, people_of
from tests.waiting import wait_until
from workshop.rig.engines import Engines

FULL = os.environ.get("MAILWARDEN_FULL") == "1"
ROUNDS, CALLS = (40, 50) if FULL else (2, 15)
ACME, CLUB, NOBODY = (people_of(name)[0] for name in TENANTS)


@pytest.fixture(scope="module")
def own_deployment(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Return a product whose lists are these tests' alone."""
    with run_deployment(engines, deployment_template, tmp_path_factory.mktemp("mixed")) as opened:
        yield opened


def url_of(engines: Engines, deployment: Deployment) -> str:
    return engines.postgresql.url(deployment.database)


def submit(client: Client, call: MixedCall, headers: Mapping[str, str] | None = None) -> Answer:
    border = {"envelopeFrom": call.sender, "envelopeRecipients": list(call.recipients), "senderHelo": "mx.pass.example"}
    return client.submit(call.message, envelope(**border), headers=headers)


def row_of(client: Client, ggrid: str, tenant: str | None = None) -> Answer:
    """Return the explanation; it is written a moment after the answer."""
    path = f"/v1/messages/{ggrid}" + (f"?tenantUid={tenant}" if tenant else "")
    wait_until(lambda: client.call("GET", path).status == 200, seconds=10)
    return client.call("GET", path)


def set_lists(deployment: Deployment, lists: Mapping[str, TenantLists], chance: random.Random) -> None:
    """Give every tenant other entries, each with the tenant's marker in its comment."""
    for name, own in lists.items():
        client = deployment.lists(tenant=name)
        before = own.entries
        for list_name, entries in own.draw(chance).items():
            if gone := [entry for entry in before[list_name] if entry not in entries]:
                assert client.delete(list_name, *gone).status == 200
            records = [{"entry": entry, "comment": f"{own.marker} {list_name}"} for entry in entries]
            assert client.add(list_name, *records).status == 200
    wait_for_lists(deployment)


class Checker:
    """Makes calls and compares everything that can be seen of them with what each tenant must find."""

    def __init__(self, deployment: Deployment, lists: Mapping[str, TenantLists]) -> None:
        self.deployment = deployment
        self.lists = lists
        self.mixed = 0
        self.seen: list[tuple[str, MixedCall]] = []
        self.unseen: list[tuple[str, str]] = []  # tenants without a recipient, and the message

    def check(self, call: MixedCall) -> None:
        groups = call.groups
        result = submit(self.deployment.client(), call).result
        outcomes = {name: self.lists[name].outcome(call, addresses) for name, addresses in groups.items()}
        said = f"{call}: {outcomes} {result}"
        assert (result["verdict"], result["decision"]) == leading(list(outcomes.values())), said
        assert ("policy.mixed-recipients" in result["tags"]) == (len(groups) > 1), said
        assert ("policy.default-tenant" in result["tags"]) == ("default" in groups), said
        self.mixed += len(groups) > 1
        self.seen.append((result["ggrid"], call))
        for name in TENANTS:
            if name in groups:
                self._check_row(result["ggrid"], call, name, outcomes[name])
            else:
                self.unseen.append((name, result["ggrid"]))
        self._check_deployment(result, groups)

    def _check_row(self, ggrid: str, call: MixedCall, name: str, outcome: tuple[str, str]) -> None:
        """Look at a tenant's row by its own token: its recipients, its outcome, its entries, and nothing else."""
        answer = row_of(self.deployment.client(name), ggrid)
        row = answer.result
        assert row["tenantUid"] == self.deployment.tenants[name]
        assert row["tenantUids"] == [self.deployment.tenants[name]]
        assert row["envelope"]["envelopeRecipients"] == list(call.groups[name])
        assert (row["verdict"], row["decision"]) == outcome, f"{call}: {row}"
        assert ("policy.default-tenant" in row["tags"]) == (name == "default")
        if row["listEntry"]:
            assert row["listEntry"]["comment"].startswith(self.lists[name].marker)
        self.search_for_others(name, answer.body)

    def _check_deployment(self, result: dict[str, Any], groups: Mapping[str, Sequence[str]]) -> None:
        """Look at the rows as somebody who may see all: the most severe, or the one of the tenant that is named."""
        client, tenants = self.deployment.client(), self.deployment.tenants
        rows = {name: row_of(client, result["ggrid"], tenants[name]).result for name in groups}
        assert {name: row["tenantUid"] for name, row in rows.items()} == {name: tenants[name] for name in groups}
        row = client.explained(result["ggrid"])
        assert set(row["tenantUids"]) == {tenants[name] for name in groups}
        assert (row["verdict"], row["decision"]) == (result["verdict"], result["decision"])
        assert {*row["tags"], "policy.default-tenant"} == {*result["tags"], "policy.default-tenant"}

    def check_unseen(self) -> None:
        """Ask as every tenant for the messages of others; abby looks for a recent message for a second."""
        with ThreadPoolExecutor(16) as threads:
            asked = threads.map(lambda each: self.deployment.client(each[0]).explain(each[1]).status, self.unseen)
            assert set(asked) == {404}

    def search_for_others(self, name: str, said: bytes) -> None:
        for other in TENANTS:
            if other != name:
                for mark in (
                    self.lists[other].marker,
                    self.deployment.tenants[other],
                    f"{other}0.box",
                    f"{other}1.box",
                ):
                    assert mark.encode() not in said, f"{name} was told of {mark}: {said!r}"


@pytest.mark.slow
@pytest.mark.contract("3 mixed recipients", "3 default tenant")
def test_generated_calls_are_decided_for_each_tenant_and_nothing_crosses(
    own_deployment: Deployment, engines: Engines, note: Callable[[str], None]
) -> None:
    chance = random.Random(20261116)
    lists = {name: TenantLists(name) for name in TENANTS}
    checker = Checker(own_deployment, lists)
    began = time.monotonic()
    for _ in range(ROUNDS):
        set_lists(own_deployment, lists, chance)
        for _ in range(CALLS):
            checker.check(draw_call(chance))
    checker.check_unseen()
    rows = asyncio.run(stored_rows(url_of(engines, own_deployment), checker))
    logs = b"".join(service.log.read_bytes() for service in own_deployment.product.services)
    assert b".box@" not in logs
    note(
        f"mixed recipients: {len(checker.seen)} calls, {checker.mixed} of several tenants, {rows} rows, "
        f"{time.monotonic() - began:.0f} s, no decision but the tenant's own, no byte of another"
    )
    assert checker.mixed > len(checker.seen) // 3


async def stored_rows(url: str, checker: Checker) -> int:
    """Look at the table itself, and search as each tenant does."""
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT tenant, ggrid, recipients, record FROM history")
    await connection.close()
    names = {UUID(uid): name for name, uid in checker.deployment.tenants.items()}
    calls = {UUID(ggrid): call for ggrid, call in checker.seen}
    of_calls = [row for row in rows if row["ggrid"] in calls]
    assert len(of_calls) == sum(len(call.groups) for call in calls.values())
    for row in of_calls:
        name = names[row["tenant"]]
        assert tuple(row["recipients"]) == calls[row["ggrid"]].groups[name]
        checker.search_for_others(name, row["record"])
    database = Database(url, 1)
    try:
        store = open_history(database)
        for ggrid, call in checker.seen[-30:]:
            for uid, name in names.items():
                if name in TENANTS:
                    await search_as(store, uid, ggrid, call, name)
    finally:
        await database.close()
    return len(of_calls)


async def search_as(store: HistoryStore, uid: UUID, ggrid: str, call: MixedCall, name: str) -> None:
    found = await ask(store, uid, f"ggrid:{ggrid}")
    assert [row.tenant for row in found] == ([uid] if name in call.groups else [])
    for other, addresses in call.groups.items():
        found = await ask(store, uid, f"ggrid:{ggrid} to:{addresses[0]}")
        assert len(found) == (other == name)


async def ask(store: HistoryStore, tenant: UUID, text: str) -> Sequence[Row]:
    return (await store.search(Scope.of(tenant), parse_query(text))).rows


def mixed(*recipients: str) -> MixedCall:
    return MixedCall("ann@pass.example", "www.three.example", "gamma", recipients)


@pytest.mark.contract("3 mixed recipients", "5 tenant_forbidden")
@pytest.mark.parametrize("others", [(CLUB,), (NOBODY,), (CLUB, NOBODY)])
def test_a_token_submits_only_for_recipients_of_its_own_tenants(
    own_deployment: Deployment, others: tuple[str, ...]
) -> None:
    answer = submit(own_deployment.client("acme"), mixed(ACME, *others))
    assert (answer.status, answer.error) == (403, "tenant_forbidden")
    allowed = submit(own_deployment.client("both"), mixed(ACME, *others))
    assert allowed.status == (403 if NOBODY in others else 200)


@pytest.mark.contract("3 mixed recipients")
def test_a_caller_of_two_tenants_sees_the_rows_of_these_alone(own_deployment: Deployment) -> None:
    ggrid = submit(own_deployment.client(), mixed(ACME, CLUB, NOBODY)).result["ggrid"]
    client, tenants = own_deployment.client("both"), own_deployment.tenants
    row = client.explained(ggrid)
    assert set(row["tenantUids"]) == {tenants["acme"], tenants["club"]}
    for name in ("acme", "club"):
        assert row_of(client, ggrid, tenants[name]).result["tenantUid"] == tenants[name]
    for foreign in (tenants["default"], tenants["bank"]):
        answer = client.call("GET", f"/v1/messages/{ggrid}?tenantUid={foreign}")
        assert (answer.status, answer.error) == (404, "message_not_found")
    assert client.call("GET", f"/v1/messages/{ggrid}?tenantUid=acme").error == "invalid_tenant_uid"
    assert client.call("GET", f"/v1/messages/{ggrid}?tenant={tenants['acme']}").error == "schema_violation"


@pytest.mark.contract("3 mixed recipients")
def test_a_report_names_the_tenant_that_learns_from_it(own_deployment: Deployment) -> None:
    ggrid = submit(own_deployment.client(), mixed(ACME, CLUB)).result["ggrid"]
    client, tenants = own_deployment.client(), own_deployment.tenants
    for name in ("acme", "club"):
        row_of(client, ggrid, tenants[name])
    unnamed = client.call("POST", f"/v1/messages/{ggrid}/report?kind=spam")
    assert (unnamed.status, unnamed.error) == (400, "schema_violation")
    assert unnamed.json["details"][0]["pointer"] == "/tenantUid"
    named = client.call("POST", f"/v1/messages/{ggrid}/report?kind=spam&tenantUid={tenants['club']}")
    assert (named.status, named.json["tenantUid"]) == (202, tenants["club"])
    own = own_deployment.client("acme").call("POST", f"/v1/messages/{ggrid}/report?kind=good")
    assert (own.status, own.json["tenantUid"]) == (202, tenants["acme"])
    foreign = own_deployment.client("acme").call(
        "POST", f"/v1/messages/{ggrid}/report?kind=good&tenantUid={tenants['club']}"
    )
    assert (foreign.status, foreign.error) == (404, "message_not_found")


@pytest.mark.contract("3 mixed recipients", "3 idempotency")
def test_a_repeated_call_is_answered_again_and_makes_no_second_rows(own_deployment: Deployment) -> None:
    call, key = mixed(ACME, CLUB), {"Idempotency-Key": f"mixed-{time.time_ns()}"}
    message = call.message
    border = envelope(envelopeFrom=call.sender, envelopeRecipients=list(call.recipients))
    first, again = (own_deployment.client().submit(message, border, headers=key) for _ in range(2))
    assert first.body == again.body
    assert json.loads(first.body)["ggrid"] == again.result["ggrid"]
    other = own_deployment.client().submit(
        message, envelope(envelopeFrom=call.sender, envelopeRecipients=[ACME]), headers=key
    )
    assert other.error == "idempotency_conflict"


@pytest.mark.contract("3 mixed recipients")
def test_a_thousand_recipients_of_three_groups_have_three_rows(own_deployment: Deployment) -> None:
    domains = ("company.example", "club.example", "elsewhere.example")
    recipients = tuple(f"u{number}@{domains[number % 3]}" for number in range(1_000))
    ggrid = submit(own_deployment.client(), mixed(*recipients)).result["ggrid"]
    for number, name in enumerate(("acme", "club", "default")):
        row = row_of(own_deployment.client(name), ggrid).result
        assert row["envelope"]["envelopeRecipients"] == list(recipients[number::3])


@pytest.mark.contract("3 mixed recipients")
def test_the_console_shows_each_person_the_rows_of_its_own_tenants(own_deployment: Deployment) -> None:
    ggrid = submit(own_deployment.client(), mixed(ACME, CLUB)).result["ggrid"]
    tenants = own_deployment.tenants
    for name in ("acme", "club"):
        row_of(own_deployment.client(name), ggrid)
    everybody, acme = sign_in(own_deployment, "analyst"), sign_in(own_deployment, "analyst", ["acme"])
    found = acme.get(f"/console/messages?q=ggrid:{ggrid}").text
    assert ACME in found
    assert CLUB not in found
    page = acme.get(f"/console/messages/{ggrid}")
    assert ACME in page.text
    assert CLUB not in page.text
    assert tenants["club"] not in page.text
    assert acme.get(f"/console/messages/{ggrid}?tenant={tenants['club']}").status_code == 404
    found = everybody.get(f"/console/messages?q=ggrid:{ggrid}").text
    for name, person, other in (("acme", ACME, CLUB), ("club", CLUB, ACME)):
        assert f"/console/messages/{ggrid}?tenant={tenants[name]}" in found
        page = everybody.get(f"/console/messages/{ggrid}?tenant={tenants[name]}")
        assert person in page.text
        assert other not in page.text
        assert "also has recipients of" in page.text
    form = {"kind": "spam", "tenant": tenants["club"]}
    said = everybody.post(
        f"/console/messages/{ggrid}/report", form, files={"message": ("m.eml", b"", "message/rfc822")}
    )
    assert said.status_code == 303
    assert f"tenant={tenants['club']}" in said.headers["Location"]
    assert "Undo" in everybody.get(f"/console/messages/{ggrid}?tenant={tenants['club']}").text
    assert "Undo the report" not in everybody.get(f"/console/messages/{ggrid}?tenant={tenants['acme']}").text
