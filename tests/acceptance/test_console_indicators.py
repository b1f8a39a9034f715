"""The indicators of a message in the console: counted, and several blocked by one change."""

import re
from urllib.parse import urlencode
from uuid import uuid4

import pytest
import requests

from mailwarden.model.record import CampaignIds
from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import keep


@pytest.fixture
def analyst(deployment: Deployment) -> ConsoleSession:
    return sign_in(deployment, "analyst", ["acme"])


@pytest.fixture
def domain() -> str:
    return f"d{uuid4().hex}.example"


def ggrid_of(deployment: Deployment, uid: str) -> str:
    return str(deployment.client().call("GET", f"/v1/quarantine/{uid}").json["ggrid"])


def picks(domain: str) -> list[str]:
    return [f"sender-block:eve@{domain}", f"sender-block:{domain}"]


def preview(user: ConsoleSession, ggrid: str, *chosen: str, **fields: str) -> requests.Response:
    return user.get(f"/console/messages/{ggrid}/block?{urlencode({'pick': chosen, **fields}, doseq=True)}")


def blocked(deployment: Deployment, domain: str) -> list[str]:
    return [
        each["entry"] for each in deployment.lists(tenant="acme").entries("sender-block") if domain in each["entry"]
    ]


def test_indicators_are_counted_over_the_users_tenants(
    deployment: Deployment, analyst: ConsoleSession, domain: str
) -> None:
    uids = [keep(deployment, sender=f"{name}@{domain}", subject=f"About {domain}") for name in ("eve", "mallory")]
    keep(deployment, "club", sender=f"eve@{domain}", subject=f"About {domain}")
    ggrid = ggrid_of(deployment, uids[0])
    text = text_of(analyst.get(f"/console/messages/{ggrid}/indicators"))
    assert re.search(r"Sender eve\S+ 1 in 30 days", text), text
    assert re.search(r"subdomains \S+ 2 in 30 days", text), text
    assert "Subject About" in text
    root = sign_in(deployment, "deployment-administrator")
    assert re.search(r"subdomains \S+ 3 in 30 days", text_of(root.get(f"/console/messages/{ggrid}/indicators")))
    assert f"/console/messages/{ggrid}/indicators" in analyst.get(f"/console/messages/{ggrid}").text


def test_similar_messages_are_counted_without_those_of_other_tenants(
    deployment: Deployment, analyst: ConsoleSession
) -> None:
    of_acme, of_club, shared = uuid4(), uuid4(), uuid4()
    uids = [keep(deployment, campaign=CampaignIds(of_acme, shared)) for _ in range(2)]
    keep(deployment, "club", campaign=CampaignIds(of_club, shared))
    path = f"/console/messages/{ggrid_of(deployment, uids[0])}/indicators"
    page = analyst.get(path)
    assert re.search(rf"Similar messages campaign {of_acme} 2 in 30 days(?!, in)", text_of(page)), text_of(page)
    assert str(shared) not in page.text
    everything = text_of(sign_in(deployment, "deployment-administrator").get(path))
    assert re.search(rf"Similar messages campaign {shared} 3 in 30 days, in 2 tenants", everything), everything


def test_several_values_are_blocked_by_one_change(deployment: Deployment, analyst: ConsoleSession, domain: str) -> None:
    ggrid = ggrid_of(deployment, keep(deployment, sender=f"eve@{domain}"))
    assert "Show the impact" in text_of(preview(analyst, ggrid))
    page = preview(analyst, ggrid, *picks(domain), comment="Ticket 7")
    assert "3 new entries" in text_of(page)
    assert "Impact on the last 30 days" in text_of(page)
    assert blocked(deployment, domain) == [], "a preview changes nothing"
    fields = {"pick": picks(domain), "comment": "Ticket 7"}
    answer = analyst.post(f"/console/messages/{ggrid}/block", fields)
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith(f"/console/messages/{ggrid}?")
    assert sorted(blocked(deployment, domain)) == sorted([f"*.{domain}", domain, f"eve@{domain}"])
    assert "blocked already" in text_of(preview(analyst, ggrid, *picks(domain), comment="Ticket 7"))


def test_only_values_of_the_message_in_its_tenant_are_blocked(
    deployment: Deployment, analyst: ConsoleSession, domain: str
) -> None:
    ggrid = ggrid_of(deployment, keep(deployment, sender=f"eve@{domain}"))
    for fields in (
        {},
        {"pick": "sender-block:ann@company.example"},
        {"pick": picks(domain), "scope": "global"},
        {"pick": picks(domain), "scope": deployment.tenants["club"]},
        {"pick": picks(domain), "expires": "soon"},
    ):
        assert analyst.post(f"/console/messages/{ggrid}/block", fields).status_code == 400, fields
    assert preview(analyst, ggrid, "x").status_code == 400
    assert blocked(deployment, domain) == []
    foreign = sign_in(deployment, "analyst", ["club"])
    for answer in (
        preview(foreign, ggrid, *picks(domain)),
        foreign.get(f"/console/messages/{ggrid}/indicators"),
        foreign.post(f"/console/messages/{ggrid}/block", {"pick": picks(domain)}),
    ):
        assert answer.status_code == 404
    auditor = sign_in(deployment, "auditor", ["acme"])
    assert auditor.post(f"/console/messages/{ggrid}/block", {"pick": picks(domain)}).status_code == 403
