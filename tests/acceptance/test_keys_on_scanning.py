"""API keys on the Email Scanning API: each key is told apart."""

import json

import pytest

from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment, run_command
from workshop.rig.samples import plain_message

MESSAGE = plain_message()


def key_of(deployment: Deployment, *scopes: str, tenant: str | None = None) -> str:
    bound = ("--global",) if tenant is None else ("--tenant", tenant)
    given = [word for scope in scopes for word in ("--scope", scope)]
    folder = str(deployment.product.abby.folder)
    return str(
        json.loads(run_command("keys", "create", "scanning", *given, *bound, "-o", "json", "--config", folder))["key"]
    )


@pytest.mark.contract("4 audit")
def test_a_key_is_named_in_the_audit_log(deployment: Deployment) -> None:
    acme = deployment.tenants["acme"]
    headers = {"Authorization": f"apikey {key_of(deployment, 'messages:submit', 'reports:write', tenant=acme)}"}
    client = deployment.client().using(None)
    ggrid = client.submit(MESSAGE, headers=headers).result["ggrid"]
    deployment.client().explained(ggrid)
    report = client.call("POST", f"/v1/messages/{ggrid}/report?kind=good", headers=headers)
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
