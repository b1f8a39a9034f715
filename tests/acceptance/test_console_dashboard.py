"""The dashboard."""

import re
from html import unescape
from uuid import uuid4

from tests.acceptance.client import ENVELOPE
from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.samples import malware_message, plain_message


def counted(user: ConsoleSession, range_: str = "1h") -> int:
    answer = user.get(f"/console/dashboard/decisions?range={range_}")
    assert answer.status_code == 200
    reported = answer.json()
    assert all(len(each["counts"]) == len(reported["times"]) for each in reported["decisions"])
    return sum(count for each in reported["decisions"] for count in each["counts"])


def shown(user: ConsoleSession, path: str) -> int:
    """Return how many messages a search shows."""
    return len(set(re.findall(r'href="/console/messages/([0-9a-f-]{36})', user.get(path).text)))


def submit(deployment: Deployment, domain: str) -> None:
    envelope = {**ENVELOPE, "envelopeRecipients": [f"bob@{domain}"]}
    assert deployment.client().submit(plain_message(), {"borderMtaData": envelope}).status == 200


def test_the_dashboard_counts_all_messages_and_one_tenants(engines: Engines, deployment: Deployment) -> None:
    everybody, club = sign_in(deployment, "deployment-administrator"), sign_in(deployment, "analyst", ["club"])
    before, mine = counted(everybody), counted(club)
    for domain in ("club.example", "club.example", "company.example"):
        submit(deployment, domain)
    # What is told may be five seconds old.
    assert wait_until(lambda: counted(everybody) >= before + 3, pause=0.5)
    assert wait_until(lambda: counted(club) >= mine + 2, pause=0.5)
    assert counted(club) == mine + 2
    assert counted(club, "7d") >= mine + 2
    for path in ("/console/", "/console/?range=1h", "/console/?range=7d", "/console/dashboard/state?range=24h"):
        assert everybody.get(path).status_code == 200


def test_the_guards_are_for_people_of_the_whole_deployment(deployment: Deployment) -> None:
    page = sign_in(deployment, "auditor").get("/console/")
    assert "In processing" in page.text
    assert "0 of 20" in text_of(page)
    page = sign_in(deployment, "auditor", ["acme"]).get("/console/")
    assert "In processing" not in page.text
    assert "Decisions over time" in page.text
    assert "127.0.0.1:" not in page.text


def test_a_range_that_does_not_exist_is_refused_with_a_sentence(deployment: Deployment) -> None:
    answer = sign_in(deployment, "analyst").get("/console/?range=1y")
    assert answer.status_code == 400
    assert "A range is one of 1h, 24h, 7d." in text_of(answer)


def test_most_attacked_recipients_link_to_their_messages_within_the_tenant(
    engines: Engines, deployment: Deployment
) -> None:
    target = f"{uuid4().hex}@company.example"
    envelope = {**ENVELOPE, "envelopeRecipients": [target]}
    for _ in range(3):
        assert deployment.client().submit(malware_message(), {"borderMtaData": envelope}).status == 200
    # Nobody asked for these two tenants before, and the figures are kept for a minute.
    analyst, other = sign_in(deployment, "analyst", ["acme", "club"]), sign_in(deployment, "analyst", ["club"])
    assert wait_until(lambda: shown(analyst, f"/console/messages?q=to:{target}") == 3, pause=0.5)
    page = analyst.get("/console/?range=7d")
    link = re.search(rf'href="([^"]+)">{re.escape(target)}</a>', page.text)
    assert link is not None
    assert shown(analyst, unescape(link[1])) == 3
    assert target not in other.get("/console/?range=7d").text
