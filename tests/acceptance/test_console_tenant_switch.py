"""The tenant switcher narrows lists and figures to one tenant of the user, on every screen, and gives no right."""

from uuid import uuid4

import pytest
import requests

from mailwarden.console.request import TENANT_COOKIE
from tests.acceptance.client import ENVELOPE
from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import keep
from tests.waiting import wait_until
from workshop.rig.samples import plain_message

ONLY = "Lists and figures show the tenant"


def switched(user: ConsoleSession, tenant: str, next_: str = "") -> requests.Response:
    return user.post("/console/switch", {"tenant": tenant, "next": next_})


def get(user: ConsoleSession, path: str, tenant: str = "") -> requests.Response:
    """Open a page with the cookie of the switcher."""
    with requests.Session() as session:
        session.trust_env = False
        cookies = f"__Host-mailwarden={user.cookie}" + (f"; {TENANT_COOKIE}={tenant}" if tenant else "")
        return session.get(
            user.url + path, verify=user.ca, timeout=60, allow_redirects=False, headers={"Cookie": cookies}
        )


def test_the_switcher_sets_and_ends_the_choice(deployment: Deployment) -> None:
    user, acme = sign_in(deployment, "analyst", ["acme", "club"]), deployment.tenants["acme"]
    for named in (acme, "ACME"):
        answer = switched(user, named, "/console/quarantine")
        assert (answer.status_code, answer.headers["Location"]) == (303, "/console/quarantine")
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith(f"{TENANT_COOKIE}={acme}; Path=/; Secure; HttpOnly; SameSite=Lax")
    assert "Max-Age=0" in switched(user, "").headers["Set-Cookie"]
    for foreign in (deployment.tenants["default"], str(uuid4()), "x"):
        answer = switched(user, foreign)
        assert answer.status_code == 404
        assert "Set-Cookie" not in answer.headers
    for elsewhere in ("https://evil.example/", "//evil.example", "/console/logout", ""):
        assert switched(user, acme, elsewhere).headers["Location"] == "/console/"


def test_the_switcher_is_for_users_of_several_tenants(deployment: Deployment) -> None:
    several, one = sign_in(deployment, "auditor", ["acme", "club"]), sign_in(deployment, "auditor", ["acme"])
    page = get(several, "/console/account")
    assert 'action="/console/switch"' in page.text
    assert ">All tenants</option>" in page.text
    assert ONLY not in page.text, "all tenants are the default"
    assert 'action="/console/switch"' not in get(one, "/console/account", deployment.tenants["acme"]).text


@pytest.mark.parametrize("value", ["club", "'; --", "0", "default"])
def test_a_cookie_of_another_tenant_is_no_choice(deployment: Deployment, value: str) -> None:
    user = sign_in(deployment, "analyst", ["acme", "club"])
    foreign = deployment.tenants["default"] if value == "default" else value
    page = get(user, "/console/quarantine", foreign)
    assert page.status_code == 200
    assert ONLY not in page.text


def test_every_list_shows_the_active_tenant_and_an_explicit_one_wins(deployment: Deployment) -> None:
    acme, club = deployment.tenants["acme"], deployment.tenants["club"]
    user = sign_in(deployment, "deployment-administrator")
    mine, other = uuid4().hex, uuid4().hex
    held = keep(deployment, "acme", subject=mine), keep(deployment, "club", subject=other)
    for path in ("/console/quarantine", "/console/messages?range=1h"):
        both = get(user, path).text
        assert mine in both
        assert other in both
        page = get(user, path, acme).text
        assert mine in page
        assert other not in page
        assert ONLY in page
    assert other in get(user, f"/console/quarantine?tenant={club}", acme).text
    assert other in get(user, f"/console/messages?range=1h&q=tenant:{club}", acme).text
    assert get(user, f"/console/quarantine/{held[1]}", acme).status_code == 200, "a page of one object"
    lists = get(user, "/console/lists", acme)
    assert f'value="{acme}" selected' in lists.text
    assert 'value="global" selected' in get(user, "/console/lists?scope=global", acme).text
    assert "Weekly report of acme" in text_of(get(user, "/console/reports", acme))
    assert "Weekly report of club" in text_of(get(user, f"/console/reports?tenant={club}", acme))


def test_the_audit_log_shows_the_active_tenant(deployment: Deployment) -> None:
    user = sign_in(deployment, "deployment-administrator")
    acme, club = deployment.tenants["acme"], deployment.tenants["club"]
    for tenant in (acme, club):
        assert user.post("/console/reports/email", {"tenant": tenant}).status_code == 303
    query = f"/console/audit?q=action:weekly-report.change+actor:{user.name}"
    assert text_of(get(user, query)).count("weekly-report.change") > text_of(get(user, query, acme)).count(
        "weekly-report.change"
    )


def test_the_dashboard_counts_the_active_tenant(deployment: Deployment) -> None:
    user = sign_in(deployment, "analyst", ["acme", "club"])
    acme, club = deployment.tenants["acme"], deployment.tenants["club"]

    def counted(tenant: str) -> int:
        answer = get(user, "/console/dashboard/decisions?range=1h", tenant).json()
        return sum(count for each in answer["decisions"] for count in each["counts"])

    before, others = counted(club), counted(acme)
    envelope = {**ENVELOPE, "envelopeRecipients": ["bob@club.example"]}
    assert deployment.client().submit(plain_message(), {"borderMtaData": envelope}).status == 200
    assert wait_until(lambda: counted(club) == before + 1, pause=0.5)
    assert counted(acme) == others
