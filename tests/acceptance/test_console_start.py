"""The first steps in the console: detected by themselves, hidden by each user, within the user's tenants."""

import json
import re

import pytest

from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment

TITLES = ("Invite a second administrator", "Tenant and domain", "API key or SMTP", "First message", "First list entry")


def states(user: ConsoleSession, tenant: str = "") -> dict[str, str]:
    page = text_of(user.get(f"/console/start?tenant={tenant}"))
    found = [(title, re.search(rf"{title} (done|open)", page)) for title in TITLES]
    return {title: match[1] for title, match in found if match}


def test_each_step_finds_out_that_it_is_done(fresh: Deployment) -> None:
    root = sign_in(fresh, "deployment-administrator")
    start = "/console/tenants/new"
    made = root.post(start, {"name": "newcomer", "domains": "newcomer.example", "profile": "balanced", "start": "1"})
    tenant = re.search(r"/console/start\?tenant=([0-9a-f-]{36})", made.headers["Location"])
    assert tenant is not None
    uid = tenant[1]
    assert states(root, uid) == dict(zip(TITLES, ("open", "done", "open", "open", "open"), strict=True))
    assert "First steps" in text_of(root.get("/console/"))
    key = {"name": "in", "scopes": ["messages:submit"], "bound": uid, "lifetime": "30"}
    assert root.post("/console/keys/new", key).status_code == 303
    sent = root.post("/console/start/sample", {"sample": "harmless", "tenant": uid})
    assert sent.status_code == 303, text_of(sent)
    assert "clean" in text_of(root.get(sent.headers["Location"]))
    added = (
        fresh.client()
        .using(None)
        .call(
            "POST",
            "/api/public/lists/v1/addEntries",
            headers={"Authorization": f"apikey {fresh.keys['all']}", "Content-Type": "application/json"},
            data=json.dumps(
                {"tenantUid": uid, "listName": "sender-block", "entries": [{"entry": "evil.example"}]}
            ).encode(),
        )
    )
    assert added.status == 200, added.body
    sign_in(fresh, "deployment-administrator")
    assert set(states(root, uid).values()) == {"done"}


@pytest.mark.parametrize(("sample", "verdict"), [("harmless", "clean"), ("spam", "spam"), ("malware", "malware")])
def test_a_sample_is_scanned_by_one_click(deployment: Deployment, sample: str, verdict: str) -> None:
    user = sign_in(deployment, "tenant-administrator", ["acme"])
    sent = user.post("/console/start/sample", {"sample": sample, "tenant": deployment.tenants["acme"]})
    assert sent.status_code == 303, text_of(sent)
    page = user.get(sent.headers["Location"])
    assert page.status_code == 200
    assert re.search(rf'mw-badge">{verdict}<', page.text), text_of(page)


def test_a_sample_stays_within_the_tenants_of_the_user(deployment: Deployment) -> None:
    user = sign_in(deployment, "tenant-administrator", ["acme"])
    club = deployment.tenants["club"]
    assert user.post("/console/start/sample", {"sample": "harmless", "tenant": club}).status_code == 400
    assert user.get(f"/console/start?tenant={club}").status_code == 400
    assert "club" not in user.get("/console/start").text
    root = sign_in(deployment, "deployment-administrator")
    assert root.post("/console/start/sample", {"sample": "harmless"}).status_code == 400, "no tenant is assumed"
    assert root.post("/console/start/sample", {"sample": "other", "tenant": club}).status_code == 400


def test_each_user_hides_steps_for_themselves(deployment: Deployment) -> None:
    user, other = (sign_in(deployment, "deployment-administrator") for _ in range(2))
    assert user.post("/console/start/hide", {"step": "entry"}).status_code == 303
    assert "First list entry" not in states(user)
    assert "First list entry" in states(other)
    assert user.post("/console/start/hide", {"step": "entry", "show": "1"}).status_code == 303
    assert "First list entry" in states(user)
    assert user.post("/console/start/hide", {"step": "nothing"}).status_code == 400


def test_users_see_the_steps_of_their_role(deployment: Deployment) -> None:
    assert set(states(sign_in(deployment, "tenant-administrator", ["acme"]))) == set(TITLES) - {"Tenant and domain"}
    assert set(states(sign_in(deployment, "analyst", ["acme"]))) == {"First message", "First list entry"}
    assert sign_in(deployment, "auditor").get("/console/start").status_code == 403
    assert "First steps" not in text_of(sign_in(deployment, "auditor").get("/console/"))
