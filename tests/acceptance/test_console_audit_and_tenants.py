"""Audit and tenants."""

import csv
import io
import json

from tests.acceptance.console_session import sign_in, text_of
from tests.acceptance.deployment import Deployment


def make_tenant(deployment: Deployment, name: str) -> str:
    root = sign_in(deployment, "deployment-administrator")
    fields = {
        "name": name,
        "domains": f"{name}.example\nalso-{name}.example",
        "profile": "strict",
        "retention_days": "",
    }
    answer = root.post("/console/tenants/new", fields)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/console/tenants?done=tenant-made")
    page = root.get("/console/tenants").text.partition("<main")[2]
    return page.split(f">{name}<")[0].rpartition("/console/tenants/")[2][:36]


def test_a_tenant_made_in_the_console_gets_its_messages_at_once(deployment: Deployment, plain: bytes) -> None:
    uid = make_tenant(deployment, "fresh")
    envelope = {"envelopeFrom": "alice@pass.example", "envelopeRecipients": ["bob@also-fresh.example"],
                "remoteAddress": "192.0.2.10", "senderHelo": "mail.pass.example"}  # fmt: skip
    answer = deployment.client().submit(plain, {"borderMtaData": envelope})
    assert deployment.client().explained(answer.result["ggrid"])["tenantUid"] == uid


def test_a_change_of_a_tenant_stands_in_the_audit_with_before_and_after(deployment: Deployment) -> None:
    uid = make_tenant(deployment, "moving")
    root = sign_in(deployment, "deployment-administrator")
    fields = {"name": "moved", "domains": "moving.example", "profile": "monitor", "retention_days": "30"}
    answer = root.post(f"/console/tenants/{uid}", fields)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/console/tenants/{uid}?done=tenant-changed")
    page = text_of(root.get(f"/console/audit?tenant={uid}&action=tenants.change"))
    for words in (f"user:{root.name}", "name moving → moved", "profile strict → monitor", "retention_days none → 30"):
        assert words in page


def test_a_mistake_comes_back_with_the_form_as_it_was_typed(deployment: Deployment) -> None:
    root = sign_in(deployment, "deployment-administrator")
    for fields, status, sentence in (
        ({"name": "acme", "domains": ""}, 409, "A tenant named `acme` exists already."),
        ({"name": "x<b>", "domains": "company.example"}, 409, "`company.example` belongs to the tenant `acme`"),
        ({"name": "x<b>", "domains": "no_domain"}, 400, "cannot be a tenant's domain"),
        ({"name": "x<b>", "retention_days": "many"}, 400, "The retention is a number"),
    ):
        answer = root.post("/console/tenants/new", fields)
        assert answer.status_code == status
        assert sentence in text_of(answer).replace("&#39;", "'")
        assert "x<b>" not in answer.text
        assert fields["name"].replace("<", "&lt;").replace(">", "&gt;") in answer.text


def test_a_tenant_user_sees_only_their_tenant_and_its_audit(deployment: Deployment) -> None:
    acme = sign_in(deployment, "tenant-administrator", ["acme"])
    tenants = acme.get("/console/tenants")
    assert deployment.tenants["acme"] in tenants.text
    assert deployment.tenants["club"] not in tenants.text
    assert acme.get(f"/console/tenants/{deployment.tenants['club']}").status_code == 404
    assert acme.post(f"/console/tenants/{deployment.tenants['acme']}", {"name": "mine"}).status_code == 403
    assert acme.get("/console/tenants/new").status_code == 403
    assert acme.get(f"/console/audit?tenant={deployment.tenants['club']}").status_code == 404
    lines = acme.get("/console/audit/export/ndjson").text.splitlines()
    assert {json.loads(line)["tenant"] for line in lines} == {deployment.tenants["acme"]}


def test_the_audit_is_exported_whole_and_no_cell_is_a_formula(deployment: Deployment) -> None:
    root = sign_in(deployment, "deployment-administrator")
    assert root.post("/console/tenants/new", {"name": "=HYPERLINK(1)"}).status_code == 303
    answer = root.get("/console/audit/export/csv?action=tenants.create")
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert "attachment" in answer.headers["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert rows[0]["subject"] == "'=HYPERLINK(1)"
    assert {row["action"] for row in rows} == {"tenants.create"}
    assert root.get("/console/audit/export/exe").status_code == 404


def test_an_invalid_filter_is_reported(deployment: Deployment) -> None:
    root = sign_in(deployment, "deployment-administrator")
    assert root.get("/console/audit?since=yesterday").status_code == 400
    assert root.get("/console/audit?before=abc").status_code == 400
    assert "No event matches" in text_of(root.get("/console/audit?actor=nobody"))
    wrong = root.get("/console/audit?q=from:alice")
    assert (wrong.status_code, "Unknown operator `from:`." in text_of(wrong)) == (400, True)
