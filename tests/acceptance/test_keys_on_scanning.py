"""API keys on the Email Scanning API: keys for lists are none here, and each key is told apart."""

import json
from collections.abc import Callable, Mapping

import pytest

from tests.acceptance.client import STATUS, Answer, Client
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment, run_command
from workshop.rig.samples import plain_message

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


@pytest.mark.spec("5 keys")
@pytest.mark.contract("5 invalid_credentials")
@pytest.mark.parametrize("scope", ["lists:read", "lists:write"])
def test_a_key_for_lists_does_not_apply_to_scans(deployment: Deployment, scope: str) -> None:
    client, key = deployment.client().using(None), key_of(deployment, scope)
    for name, call in calls_of(client, key, deployment.tenants["acme"]).items():
        answer = call()
        assert (answer.status, answer.error) == (401, "invalid_credentials"), name


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
