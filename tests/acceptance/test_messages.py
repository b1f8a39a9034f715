"""Searches, counts and statistics of messages over the API, within the tenants of the credential."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from tests.acceptance.client import Answer, Client
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import deliver, keep

NDJSON = {"Accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
def mark(deployment: Deployment) -> str:
    """Return a word of four messages of acme and one of club."""
    word = f"needle{uuid4().hex}"
    deliver(deployment, "acme", [f"{word} {number}" for number in range(3)])
    keep(deployment, "acme", subject=f"{word} held")
    deliver(deployment, "club", [f"{word} club"])
    return word


def ask(client: Client, path: str = "", headers: dict[str, str] | None = None, **query: object) -> Answer:
    return client.call("GET", f"/v1/messages{path}?{urlencode(query)}", headers=headers)


def subjects(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [each["subject"].partition(" ")[2] for each in answer.json["messages"]]


@pytest.fixture(scope="module")
def acme(deployment: Deployment) -> Client:
    return deployment.client("acme")


def test_pages_follow_one_another_in_both_orders(acme: Client, mark: str) -> None:
    first = ask(acme, q=mark, limit=3)
    assert (len(subjects(first)), subjects(first)[0], first.json["complete"]) == (3, "held", True)
    second = ask(acme, q=mark, limit=3, after=first.json["next"])
    assert second.json["next"] is None
    assert {*subjects(first), *subjects(second)} == {"held", "0", "1", "2"}
    assert len(subjects(second)) == 1
    oldest = subjects(ask(acme, q=mark, order="oldest", limit=4))
    assert oldest == [*subjects(second), *subjects(first)[:0:-1], "held"]
    assert set(first.json["messages"][0]) == {
        "ggrid", "tenantUid", "created", "verdict", "decision", "fromAddress", "fromName", "recipients", "subject",
        "tags", "points", "reason", "campaign",
    }  # fmt: skip


def test_the_query_language_is_that_of_the_console(acme: Client, mark: str) -> None:
    assert subjects(ask(acme, q=f"{mark} is:held")) == ["held"]
    assert subjects(ask(acme, q=f"{mark} tenant:acme -decision:deliver")) == ["held"]
    now = datetime.now(UTC).isoformat()
    assert subjects(ask(acme, q=mark, since=now)) == []
    assert len(subjects(ask(acme, q=mark, until=now))) == 4


@pytest.mark.contract("5 schema_violation")
def test_a_wrong_query_says_where_and_what(acme: Client) -> None:
    wrong = ask(acme, q="invoice verdict:nice")
    assert (wrong.status, wrong.error) == (400, "invalid_query")
    (detail,) = wrong.json["details"]
    assert (detail["character"], detail["term"]) == (9, "verdict:nice")
    assert "one of" in detail["problem"]
    for query in ({"limit": 501}, {"after": "x"}, {"order": "size"}, {"since": "yesterday"}, {"search": "x"}):
        assert ask(acme, **query).error == "schema_violation", query


@pytest.mark.contract("4 key bound")
def test_a_credential_searches_its_own_tenants(deployment: Deployment, acme: Client, mark: str) -> None:
    tenants = deployment.tenants
    assert len(subjects(ask(deployment.client(), q=mark))) == 5
    assert subjects(ask(deployment.client(), q=mark, tenantUid=tenants["club"])) == ["club"]
    assert ask(acme, q=mark, tenantUid=tenants["club"]).error == "tenant_forbidden"
    assert ask(acme, q=mark, tenantUid=str(uuid4())).error == "tenant_forbidden"
    assert ask(deployment.client(), tenantUid=str(uuid4())).error == "tenant_not_found"
    assert ask(acme, q=f"{mark} tenant:club").error == "invalid_query"
    assert ask(acme, "/count", q=mark).json["count"] == 4
    assert ask(acme, "/count", tenantUid=tenants["club"]).error == "tenant_forbidden"


def lines(answer: Answer) -> list[dict[str, Any]]:
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.body.splitlines()]


def test_a_stream_ends_with_a_line_about_its_end(deployment: Deployment, acme: Client, mark: str) -> None:
    answer = ask(acme, headers=NDJSON, q=mark)
    *found, end = lines(answer)
    assert (answer.headers["X-Row-Limit"], answer.headers["X-Time-Limit"]) == ("100000", "120")
    assert {each["tenantUid"] for each in found} == {deployment.tenants["acme"]}
    assert (end["end"], end["messages"], end["complete"], end["next"]) == (True, 4, True, None)
    *found, end = lines(ask(acme, headers=NDJSON, q=mark, limit=3))
    assert (len(found), end["messages"], end["complete"]) == (3, 3, False)
    assert end["searchedBack"].endswith("Z")
    *found, end = lines(ask(acme, headers=NDJSON, q=mark, after=end["next"]))
    assert (len(found), end["complete"]) == (1, True)
    assert ask(acme, headers=NDJSON, q="verdict:nice").error == "invalid_query"


def test_a_count_has_figures_by_verdict_and_state(acme: Client, mark: str) -> None:
    found = ask(acme, "/count", q=mark).json
    assert (found["count"], found["exact"], found["counted"]) == (4, True, 4)
    assert found["decisions"] == {"deliver": 3, "quarantine": 1}
    assert found["states"]["held"] == 1


@pytest.fixture
def busy(acme: Client) -> Iterator[list[Answer]]:
    with ThreadPoolExecutor(12) as threads:
        yield list(threads.map(lambda _: ask(acme, "/count", q="-from:nobody@nowhere.example"), range(36)))


@pytest.mark.contract("5 rate_limited")
def test_one_credential_has_two_searches_at_once(busy: list[Answer]) -> None:
    statuses = {answer.status for answer in busy}
    assert statuses == {200, 429}
    assert all(answer.headers["Retry-After"] == "1" for answer in busy if answer.status == 429)


def test_statistics_count_days_within_the_tenants(deployment: Deployment, acme: Client, mark: str) -> None:
    def of(client: Client, **query: str) -> Answer:
        return client.call("GET", f"/v1/statistics?{urlencode(query)}")

    today = datetime.now(UTC).date().isoformat()
    own = of(acme, tenantUid=deployment.tenants["acme"]).json
    assert own["days"][-1]["day"] == today
    assert (own["complete"], own["days"][-1]["complete"]) == (False, False)
    assert own["days"][-1]["decisions"]["quarantine"] >= 1
    club = of(deployment.client("club")).json["days"][-1]
    every = of(deployment.client(), **{"from": today, "to": today}).json["days"][-1]
    assert every["messages"] >= own["days"][-1]["messages"] + club["messages"]
    assert sum(every["verdicts"].values()) == every["messages"]
    assert of(acme, tenantUid=deployment.tenants["club"]).error == "tenant_forbidden"
    for wrong in ({"from": "2026-02-30"}, {"from": "2026-02-02", "to": "2026-02-01"}, {"from": "2020-01-01"}):
        assert of(acme, **wrong).error == "schema_violation", wrong
