"""The page behind a link of a digest, as browsers, strangers and programs that look into mail meet it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from mailwarden.crypto.keyring import KeyRing
from mailwarden.model.outcome import Verdict
from mailwarden.quarantine.digest import DigestLink
from mailwarden.quarantine.digest_links import DigestLinkSigner
from tests.acceptance.client import Answer
from tests.acceptance.console_session import sign_in, text_of
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import keep, link_seal, state_of

TWO = ("ann@company.example", "bob@company.example")
HOSTILE = '<img src="https://evil.example/x"> \u202egpj.exe https://evil.example'


def switch(deployment: Deployment, *, on: bool) -> str:
    """Have acme's recipients told or not, in the console; return what its audit says of that."""
    root, tenant = sign_in(deployment, "deployment-administrator"), deployment.tenants["acme"]
    fields = {"name": "acme", "domains": "company.example", "profile": "balanced"}
    answer = root.post(f"/console/tenants/{tenant}", {**fields, **({"quarantine_digest": "1"} if on else {})})
    assert answer.status_code == 303
    page = root.get(f"/console/tenants/{tenant}").text
    assert ('name="quarantine_digest" value="1" checked' in page) is on
    return text_of(root.get(f"/console/audit?tenant={tenant}&action=tenants.change"))


@pytest.fixture(scope="module", autouse=True)
def wanted(deployment: Deployment) -> Iterator[None]:
    assert "quarantine_digest false → true" in switch(deployment, on=True)
    yield
    switch(deployment, on=False)


def path_to(
    deployment: Deployment, uid: str, number: int = 1, seal: DigestLinkSigner | None = None, days: float = 1
) -> str:
    link = DigestLink(UUID(uid), number, datetime.now(UTC) + timedelta(days=days))
    return f"/held/{(seal or link_seal(deployment)).token(link)}"


def call(deployment: Deployment, method: str, path: str, **headers: str) -> Answer:
    return deployment.client().using(None).call(method, path, headers=headers)


@pytest.mark.contract("3 quarantine link")
def test_looking_changes_nothing_and_the_button_releases_to_one_recipient_once(deployment: Deployment):
    uid = keep(deployment, recipients=TWO)
    path = path_to(deployment, uid, 2)
    for _ in range(3):
        assert "Deliver it to me" in call(deployment, "GET", path).body.decode()
    assert call(deployment, "HEAD", path).status == 200
    assert state_of(deployment, uid) == dict.fromkeys(TWO, "held")
    answer = call(deployment, "POST", path, Origin="null", **{"Sec-Fetch-Site": "same-origin"})
    assert (answer.status, "on its way" in answer.body.decode()) == (200, True)
    assert state_of(deployment, uid) == {TWO[0]: "held", TWO[1]: "releasing"}
    for method in ("POST", "GET"):
        assert "released already" in call(deployment, method, path).body.decode()
    root = sign_in(deployment, "deployment-administrator")
    assert f"digest:{TWO[1]}" in root.get("/console/audit?action=quarantine.release").text


@pytest.mark.contract("3 quarantine link")
def test_every_link_that_does_not_hold_is_answered_alike(deployment: Deployment):
    good, deleted = keep(deployment, recipients=TWO[:1]), keep(deployment)
    foreign = keep(deployment, "club", recipients=("eve@club.example",))  # of a tenant that wants no digests
    worse = [keep(deployment, verdict=each) for each in (Verdict.MALWARE, Verdict.PHISHING, Verdict.BLOCKED)]
    assert deployment.client().call("DELETE", f"/v1/quarantine/{deleted}").status == 200
    paths = [
        "/held/x",
        f"/held/{'A' * 84}",
        path_to(deployment, good, days=-1),
        path_to(deployment, good, seal=DigestLinkSigner(KeyRing.of(b"another"))),
        path_to(deployment, good, 2),
        path_to(deployment, str(uuid4())),
        *(path_to(deployment, each) for each in (deleted, foreign, *worse)),
    ]
    answers = {
        (answer.status, answer.body, answer.headers["Content-Security-Policy"])
        for path in paths
        for method in ("GET", "POST")
        for answer in [call(deployment, method, path)]
    }
    assert len(answers) == 1
    ((status, body, _),) = answers
    assert status == 404
    assert b"This link is invalid or has expired" in body
    assert {*state_of(deployment, good).values(), *state_of(deployment, foreign).values()} == {"held"}


def test_the_page_shows_a_hostile_message_without_leaking_its_address(deployment: Deployment):
    uid = keep(deployment, subject=HOSTILE, sender=f"{HOSTILE}@evil.example", name=HOSTILE)
    path = path_to(deployment, uid)
    answer = call(deployment, "GET", path)
    page = answer.body.decode()
    assert answer.status == 200
    assert "&lt;img src=&#34;https[:]//evil[.]example/x&#34;&gt;  gpj[.]exe".replace("  ", " ") in page
    assert "<script" not in page
    assert "evil.example" not in page
    assert "\u202e" not in page
    assert "company.example" not in page, "nor whom it is for"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'")
    assert "script-src" not in policy
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "Set-Cookie" not in answer.headers
    assert path.rpartition("/")[2] not in deployment.product.abby.log.read_text("utf-8"), "abby's log does not name it"


def test_links_end_when_the_tenant_wants_no_digests_any_more(deployment: Deployment):
    path = path_to(deployment, keep(deployment))
    assert call(deployment, "GET", path).status == 200
    switch(deployment, on=False)
    try:
        assert call(deployment, "GET", path).status == call(deployment, "POST", path).status == 404
    finally:
        switch(deployment, on=True)
