"""Messages: searches, pages, following, and what each tenant's people see of them."""

import html
import json
import re
import time
from urllib.parse import quote
from uuid import uuid4

import pytest

from mailwarden.access.saved_searches import MAX_SAVED
from tests.acceptance.client import ENVELOPE
from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.samples import malware_message, plain_message

DOMAINS = {"acme": "company.example", "bank": "bank.example"}
ROW = re.compile(r'href="/console/messages/([0-9a-f-]{36})\?tenant=[0-9a-f-]{36}"')


@pytest.fixture(scope="module")
def sent(engines: Engines, deployment: Deployment) -> dict[str, str]:
    """Return the ggrid of a message for each of two tenants, and of one with malware for the first."""
    found = {name: submit(deployment, plain_message(), f"bob@{domain}") for name, domain in DOMAINS.items()}
    found["malware"] = submit(deployment, malware_message(), "bob@company.example")
    wait_for(deployment, *found.values())
    return found


def submit(deployment: Deployment, message: bytes, recipient: str) -> str:
    envelope = {**ENVELOPE, "envelopeRecipients": [recipient]}
    return str(deployment.client().submit(message, {"borderMtaData": envelope}).result["ggrid"])


def wait_for(deployment: Deployment, *ggrids: str) -> None:
    client = deployment.client()
    assert wait_until(lambda: all(client.explain(ggrid).status == 200 for ggrid in ggrids), pause=0.1)


def search(user: ConsoleSession, text: str, more: str = "") -> set[str]:
    answer = user.get(f"/console/messages?q={quote(text)}{more}")
    assert answer.status_code == 200, text_of(answer)
    return set(ROW.findall(answer.text))


def test_a_search_finds_by_operator_and_leads_to_the_message(deployment: Deployment, sent: dict[str, str]) -> None:
    user = sign_in(deployment, "analyst")
    assert sent["acme"] in search(user, "to:company.example")
    assert sent["bank"] not in search(user, "to:company.example")
    assert sent["malware"] in search(user, "verdict:malware")
    assert sent["malware"] not in search(user, "to:company.example -verdict:malware")
    assert search(user, f"ggrid:{sent['malware']}") == {sent["malware"]}
    assert sent["acme"] in search(user, "tenant:acme")
    assert search(user, "from:nobody@nowhere.example") == set()
    assert user.get(f"/console/messages/{sent['malware']}").status_code == 200


def test_a_time_range_holds(deployment: Deployment, sent: dict[str, str]) -> None:
    user = sign_in(deployment, "analyst")
    assert sent["acme"] in search(user, "", "&range=1h")
    assert search(user, "", "&range=between&since=2020-01-01T00:00&until=2020-01-02T00:00") == set()
    assert sent["acme"] in search(user, "", "&range=between&since=2020-01-01T00:00")


def test_the_order_is_kept_in_the_url_and_named(engines: Engines, deployment: Deployment) -> None:
    user = sign_in(deployment, "analyst", ["acme"])
    recipient = f"{uuid4().hex}@company.example"  # other tests send more messages than a page shows
    sent = [submit(deployment, raw, recipient) for raw in (plain_message(), malware_message(), plain_message())]
    wait_for(deployment, *sent)
    asked = f"q=to:{recipient}&range=1h"
    pages = {order: user.get(f"/console/messages?{asked}&order={order}") for order in ("newest", "oldest", "points")}
    shown = {order: list(dict.fromkeys(ROW.findall(page.text))) for order, page in pages.items()}
    assert shown["oldest"] == sent
    assert shown["newest"] == list(reversed(sent))
    assert shown["points"] == [sent[1], sent[2], sent[0]]
    for order, sentence in {"oldest": "Oldest first.", "points": "Most points first."}.items():
        assert sentence in text_of(pages[order])
        assert f"&amp;range=1h&amp;order={order}" in pages[order].text
    table = user.get(f"/console/messages/search/export/csv?{asked}&order=oldest").text
    assert [line.split(",")[1].strip('"') for line in table.splitlines()[1:]] == sent
    assert "3 messages" in text_of(user.get(f"/console/messages/search/facets?{asked}"))


def test_a_search_without_matches_proposes_near_ones(deployment: Deployment, sent: dict[str, str]) -> None:
    user = sign_in(deployment, "analyst", ["acme"])
    empty = user.get("/console/messages?q=to:compnay.example")
    assert 'hx-get="/console/messages?q=to%3Acompnay.example&amp;near=1"' in empty.text
    near = user.get("/console/messages?q=to:compnay.example&near=1")
    assert '<a href="/console/messages?q=to%3Acompany.example">to:company.example</a>?' in near.text
    fewer = text_of(user.get("/console/messages?q=to:company.example+subject:zzzzzz&near=1"))
    assert "There are matches without subject:zzzzzz" in " ".join(fewer.split())
    past = user.get("/console/messages?q=to:company.example&range=between&until=2020-01-01T00:00&near=1")
    assert 'href="/console/messages?q=to%3Acompany.example&amp;range=all">search all history' in past.text
    foreign = sign_in(deployment, "analyst", ["bank"]).get("/console/messages?q=to:compnay.example&near=1")
    assert "company.example" not in foreign.text
    assert "No similar message" in foreign.text


def test_completions_come_from_visible_messages_alone(deployment: Deployment, sent: dict[str, str]) -> None:
    def completed(user: ConsoleSession, text: str) -> list[str]:
        answer = user.get(f"/console/messages/search/completions?q={quote(text)}")
        assert (answer.status_code, answer.headers["Content-Type"].partition(";")[0]) == (200, "application/json")
        return [each["text"] for each in answer.json()["found"]]

    acme, bank = (sign_in(deployment, "analyst", [name]) for name in ("acme", "bank"))
    assert completed(acme, "x to:bob") == ["to:bob@company.example"]
    assert completed(bank, "x to:bob") == ["to:bob@bank.example"]
    assert completed(bank, "company") == completed(bank, "tenant:acme") == []
    assert completed(acme, "tenant:ac") == ["tenant:acme"]
    assert completed(acme, "is:h") == ["is:held"]
    assert completed(acme, "\x00" + "x" * 600) == []


def test_saved_searches_belong_to_one_user(deployment: Deployment, sent: dict[str, str]) -> None:
    user, other = sign_in(deployment, "analyst", ["acme"]), sign_in(deployment, "analyst", ["acme"])
    saved = "/console/messages/search/saved"
    form = {"search": "q=to:company.example&range=30d&order=oldest&before=x", "name": " Mail to\tus "}
    assert user.post(saved, form).status_code == 400, "the cursor is invalid"
    answer = user.post(saved, {**form, "search": form["search"].removesuffix("&before=x")})
    assert answer.headers["Location"] == (
        "/console/messages?q=to%3Acompany.example&range=30d&order=oldest&done=search-saved"
    )
    link = 'href="/console/messages?q=to%3Acompany.example&amp;range=30d&amp;order=oldest">Mail to us</a>'
    assert link in user.get("/console/messages").text
    assert "Mail to us" not in other.get("/console/messages").text
    user.post(saved, {"search": "q=hello", "name": "Mail to us"})
    page = user.get("/console/messages").text
    assert link not in page
    assert page.count(">Mail to us</a>") == 1, "a search of the same name is replaced"
    (uid,) = re.findall(r"/saved/([0-9a-f-]{36})/delete", page)
    assert other.post(f"{saved}/{uid}/delete", {}).status_code == 404
    for wrong in ({"name": ""}, {"name": "x" * 61}, {"name": "\u202e"}, {"search": "q=form:x"}, {"search": "range=x"}):
        assert user.post(saved, {"search": "q=hello", "name": "wrong", **wrong}).status_code == 400, wrong
    assert user.post(f"{saved}/{uid}/delete", {}).headers["Location"] == "/console/messages?done=search-deleted"
    assert "Mail to us" not in user.get("/console/messages").text
    assert user.post(f"{saved}/{uid}/delete", {}).status_code == 404
    events = sign_in(deployment, "auditor").get("/console/audit/export/ndjson?tenant=" + deployment.tenants["acme"])
    actions = [event["action"] for event in map(json.loads, events.text.splitlines()) if "Mail to us" in str(event)]
    assert actions == ["searches.delete", "searches.save", "searches.save"]


def test_a_user_saves_at_most_fifty_searches(deployment: Deployment) -> None:
    user = sign_in(deployment, "analyst", ["acme"])
    statuses = [
        user.post("/console/messages/search/saved", {"search": "q=x", "name": f"search {number}"}).status_code
        for number in range(MAX_SAVED + 1)
    ]
    assert statuses == [303] * MAX_SAVED + [400]
    assert user.post("/console/messages/search/saved", {"search": "q=y", "name": "search 7"}).status_code == 303


def test_people_of_a_tenant_see_its_messages_alone(deployment: Deployment, sent: dict[str, str]) -> None:
    user = sign_in(deployment, "tenant-administrator", ["bank"])
    for text in ("", "to:company.example", "verdict:malware", "-verdict:clean", "-from:nobody.example", "hello",
                 f"ggrid:{sent['acme']}", f"ggrid:{sent['malware']}"):  # fmt: skip
        found = search(user, text)
        assert sent["acme"] not in found, text
        assert sent["malware"] not in found, text
    assert sent["bank"] in search(user, "")
    assert sent["bank"] in search(user, "to:bank.example")
    rows = user.get("/console/messages/tail/rows?tail=1")
    assert sent["bank"] in rows.text
    assert sent["acme"] not in rows.text
    both = sign_in(deployment, "auditor", ["bank", "acme"])
    assert {sent["bank"], sent["acme"]} <= search(both, "")


def test_a_foreign_tenant_name_looks_unknown(deployment: Deployment) -> None:
    user = sign_in(deployment, "analyst", ["bank"])
    answers = [
        user.get(f"/console/messages?q=tenant:{name}") for name in ("acme", deployment.tenants["acme"], "nobody")
    ]
    assert [answer.status_code for answer in answers] == [400] * 3
    for answer in answers:
        assert "There is no such tenant, or you may not see it." in text_of(answer)


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ("q=form:alice", 400, "Unknown operator form: ."),
        ("q=verdict:bad", 400, "verdict: needs one of malware"),
        ("q=hello+ip:1.2.3", 400, "(at character 7: ip:1.2.3 )"),
        ('q=subject:"open', 400, "is not closed"),
        ("q=" + "a" * 501, 400, "at most 500 characters"),
        ("range=9y", 400, "There is no time range of that name."),
        ("order=best", 400, "There is no order of that name."),
        ("range=between&since=yesterday", 400, "a time such as"),
        ("range=between&since=2026-01-02&until=2026-01-01", 400, "ends before it begins"),
        ("before=1", 400, "is not a ggrid"),
        ("before=6f9619ff-8b86-4011-b42d-00c04fc964ff", 400, "is not a ggrid"),
    ],
)
def test_a_query_error_is_shown_and_finds_nothing(
    deployment: Deployment, sent: dict[str, str], query: str, status: int, sentence: str
) -> None:
    answer = sign_in(deployment, "analyst").get(f"/console/messages?{query}")
    assert answer.status_code == status
    assert sentence in html.unescape(text_of(answer))
    assert ROW.findall(answer.text) == []


def test_new_messages_appear_while_following(deployment: Deployment, sent: dict[str, str]) -> None:
    user = sign_in(deployment, "analyst", ["acme"])
    page = user.get("/console/messages?tail=1&q=to:company.example")
    (address,) = re.findall(r'hx-get="([^"]+)"', page.text)
    ggrid = submit(deployment, plain_message(), "bob@company.example")
    other = submit(deployment, plain_message(), "bob@bank.example")
    began = time.monotonic()
    assert wait_until(lambda: ggrid in user.get(html.unescape(address)).text, pause=0.1)
    assert time.monotonic() - began < 15
    wait_for(deployment, other)
    rows = user.get(html.unescape(address)).text
    assert other not in rows
    assert "<html" not in rows
