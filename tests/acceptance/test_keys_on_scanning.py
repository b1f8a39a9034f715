"""API keys on the Email Scanning API: each scope by itself, within the tenants of the key."""

import json
from collections.abc import Callable, Mapping

import pytest

from rig.samples import plain_message
from tests.acceptance.client import STATUS, Answer, Client
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment, run_command
from tests.acceptance.test_console_keys import is_good

MESSAGE = plain_message()
NOBODY = "00000000-0000-4000-8000-000000000000"


def key_of(deployment: Deployment, *scopes: str, tenant: str | None = None) -> str:
    bound = ("--global",) if tenant is None else ("--tenant", tenant)
    given = [word for scope in scopes for word in ("--scope", scope)]
    folder = str(deployment.product.abby.folder)
    return str(
        json.loads(run_command("keys", "create", "scanning", *given, *bound, "-o", "json", "--config", folder))["key"]
    )


def calls_of(client: Client, key: str, tenant: str) -> Mapping[str, Callable[[], Answer]]:
    """Return one call for each scope."""
    headers = {"Authorization": f"apikey {key}"}

    def call(method: str, path: str) -> Callable[[], Answer]:
        return lambda: client.call(method, path, headers=headers)

    return {
        "messages:submit": lambda: client.submit(MESSAGE, headers=headers),
        "messages:read": call("GET", f"/v1/messages/{NOBODY}"),
        "reports:write": call("GET", f"/v1/learning?tenantUid={tenant}"),
        "quarantine:read": call("GET", "/v1/quarantine?limit=1"),
        "quarantine:manage": call("GET", f"/v1/quarantine/{NOBODY}/message"),
        "events:read": call("GET", "/v1/events?after=latest"),
        "status:read": call("POST", STATUS),
    }


MESSAGES = ("messages:submit", "messages:read", "reports:write", "quarantine:read", "quarantine:manage")
SCOPES = (*MESSAGES, "events:read", "status:read")


@pytest.mark.contract("4 key scopes")
@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_may_do_exactly_what_its_scope_says(deployment: Deployment, scope: str) -> None:
    client, key = deployment.client().using(None), key_of(deployment, scope)
    statuses = {name: call().status for name, call in calls_of(client, key, deployment.tenants["acme"]).items()}
    assert statuses[scope] in (200, 404)
    assert {name for name, status in statuses.items() if status != 403} == {scope}
    assert client.call("GET", "/metrics", headers={"Authorization": f"apikey {key}"}).status == 403
    assert not is_good(deployment, key), "no scope of lists is included"


@pytest.mark.spec("5 keys")
@pytest.mark.contract("5 invalid_credentials")
@pytest.mark.parametrize("scope", ["lists:read", "lists:write"])
def test_a_key_for_lists_does_not_apply_to_scans(deployment: Deployment, scope: str) -> None:
    client, key = deployment.client().using(None), key_of(deployment, scope)
    for name, call in calls_of(client, key, deployment.tenants["acme"]).items():
        answer = call()
        assert (answer.status, answer.error) == (401, "invalid_credentials"), name


@pytest.mark.contract("4 key bound")
def test_a_key_reaches_its_own_tenants_alone(deployment: Deployment) -> None:
    acme, club = deployment.tenants["acme"], deployment.tenants["club"]
    headers = {"Authorization": f"apikey {key_of(deployment, *SCOPES, tenant=acme)}"}
    client = deployment.client().using(None)
    found = client.submit(MESSAGE, headers=headers).result["ggrid"]
    assert client.submit(MESSAGE, tenant=club, headers=headers).error == "tenant_forbidden"
    other = deployment.client().submit(MESSAGE, tenant=club).result["ggrid"]
    deployment.client().explained(other)
    deployment.client().explained(found)
    assert client.call("GET", f"/v1/messages/{found}", headers=headers).status == 200
    assert client.call("GET", f"/v1/messages/{other}", headers=headers).status == 404
    assert client.call("GET", f"/v1/learning?tenantUid={club}", headers=headers).error == "tenant_forbidden"
    assert client.call("GET", f"/v1/quarantine?tenantUid={club}", headers=headers).json["messages"] == []


@pytest.mark.contract("4 audit")
def test_a_key_is_named_in_the_audit_log(deployment: Deployment) -> None:
    acme = deployment.tenants["acme"]
    headers = {"Authorization": f"apikey {key_of(deployment, 'messages:submit', 'reports:write', tenant=acme)}"}
    client = deployment.client().using(None)
    ggrid = client.submit(MESSAGE, headers=headers).result["ggrid"]
    deployment.client().explained(ggrid)
    report = client.call("POST", f"/v1/messages/{ggrid}/report?kind=fine", headers=headers)
    assert report.status == 202, report.body
    assert report.json["reportedBy"] == "key:scanning"
    assert "key:scanning" in sign_in(deployment, "auditor").get("/console/audit").text


def test_results_of_an_idempotency_key_belong_to_one_key(deployment: Deployment) -> None:
    client = deployment.client().using(None)
    ggrids = set()
    for key in (key_of(deployment, "messages:submit"), key_of(deployment, "messages:submit")):
        headers = {"Authorization": f"apikey {key}", "Idempotency-Key": "keys-once"}
        ggrids |= {client.submit(MESSAGE, headers=headers).result["ggrid"] for _ in range(2)}
    assert len(ggrids) == 2, "each key gets its own first result, though both have one name"
