"""Events over the API: by cursor, by lines, by long polling, and within the tenants of a credential."""

import json
import threading
import time
from typing import Any

import jsonschema_rs
import pytest

from tests.acceptance.client import Answer
from tests.acceptance.deployment import Deployment
from tests.acceptance.test_keys_on_scanning import key_of
from tests.waiting import wait_until
from workshop.rig.samples import plain_message

PATH = "/v1/events"


def read(deployment: Deployment, query: str = "", key: str | None = None, **headers: str) -> Answer:
    client = deployment.client()
    if key is not None:
        client, headers = client.using(None), {**headers, "Authorization": f"apikey {key}"}
    return client.call("GET", PATH + query, headers=headers)


def latest(deployment: Deployment) -> str:
    return str(read(deployment, "?after=latest").json["next"])


def test_a_scan_is_read_as_an_event_that_its_schema_describes(deployment: Deployment) -> None:
    cursor = latest(deployment)
    ggrid = deployment.client().submit(plain_message()).result["ggrid"]
    answer = read(deployment, f"?after={cursor}&wait=30&types=message.scanned")
    (event,) = answer.result["events"]
    assert (event["type"], event["subject"], event["data"]["ggrid"]) == ("message.scanned", ggrid, ggrid)
    schemas = deployment.client().using(None).call("GET", "/v1/events/schemas").json["schemas"]
    jsonschema_rs.validator_for(schemas["message.scanned"]).validate(event)

    lines = read(deployment, f"?after={cursor}", Accept="application/x-ndjson")
    assert lines.headers["Content-Type"] == "application/x-ndjson"
    assert event in [json.loads(line) for line in lines.body.splitlines()]
    assert read(deployment, f"?after={lines.headers['X-Next-Cursor']}&types=message.scanned").json["events"] == []
    assert read(deployment, f"?after={cursor}&limit=1").json["more"] is True
    assert (answer.json["more"], lines.headers["X-More-Events"]) == (False, "false")


def test_a_waiting_client_gets_the_event_at_once(deployment: Deployment) -> None:
    cursor, found = latest(deployment), list[Any]()

    def wait() -> None:
        began = time.monotonic()
        found.append((read(deployment, f"?after={cursor}&types=list.changed&wait=30"), time.monotonic() - began))

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: "mailwarden_events_clients_waiting 1.0" in metrics(deployment))
    deployment.lists("acme", "acme").add("sender-block", "events@evil.example")
    waiting.join()
    (answer, seconds) = found[0]
    (event,) = answer.json["events"]
    assert event["data"]["entries"] == ["events@evil.example"]
    assert event["tenantUid"] == deployment.tenants["acme"]
    assert seconds < 20


def metrics(deployment: Deployment) -> str:
    return deployment.client().call("GET", "/metrics").body.decode()


def test_a_key_sees_the_events_of_its_tenants_alone(deployment: Deployment) -> None:
    acme, club = deployment.tenants["acme"], deployment.tenants["club"]
    cursor, own = latest(deployment), key_of(deployment, "events:read", tenant=acme)
    key_of(deployment, "events:read")  # an event of the deployment
    deployment.lists("club", "club").add("sender-block", "club@evil.example")
    deployment.lists("acme", "acme").add("sender-block", "acme@evil.example")

    def tenants(answer: Answer) -> set[str | None]:
        return {event["tenantUid"] for event in answer.result["events"]}

    assert tenants(read(deployment, f"?after={cursor}")) >= {None, acme, club}
    assert tenants(read(deployment, f"?after={cursor}", own)) == {acme}
    other = read(deployment, f"?after={cursor}&tenantUid={club}", own)
    assert (other.status, other.error) == (403, "tenant_forbidden")
    missing = read(deployment, f"?after={cursor}&tenantUid=00000000-0000-4000-8000-000000000000")
    assert (missing.status, missing.error) == (404, "tenant_not_found")
    assert tenants(read(deployment, f"?after={cursor}&tenantUid={club}")) == {club}
    both = deployment.client("both").call("GET", f"{PATH}?after={cursor}")
    assert tenants(both) == {acme, club}


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ("?after=nonsense", 400, "schema_violation"),
        ("?types=message.unknown", 400, "schema_violation"),
        ("?wait=61", 400, "schema_violation"),
        ("?tenantUid=x", 400, "invalid_tenant_uid"),
        ("?after=AX__________", 410, "cursor_expired"),
    ],
)
def test_a_wrong_query_is_rejected(deployment: Deployment, query: str, status: int, error: str) -> None:
    answer = read(deployment, query)
    assert (answer.status, answer.error) == (status, error)


def test_a_token_needs_every_permission(deployment: Deployment) -> None:
    for token in ("plain", "reader", "looker", "acme"):
        answer = deployment.client(token).call("GET", PATH)
        assert (answer.status, answer.error) == (403, "forbidden")
        assert "`*`" in answer.json["message"]
