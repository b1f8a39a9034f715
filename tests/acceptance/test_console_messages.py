"""Messages, through the front door: searches, pages, following, and what each tenant's people see of them."""

import html
import re
import time
from urllib.parse import quote

import pytest

from rig.engines import Engines
from rig.samples import malware_message, plain_message
from tests.acceptance.client import ENVELOPE, wait_until
from tests.acceptance.console_guest import ConsoleGuest, sign_in, text_of
from tests.acceptance.house import House
from tests.browser.hostile import hostile_strings

DOMAINS = {"acme": "company.example", "bank": "bank.example"}
ROW = re.compile(r'href="/console/messages/([0-9a-f-]{36})\?tenant=[0-9a-f-]{36}"')


@pytest.fixture(scope="module")
def sent(engines: Engines, house: House) -> dict[str, str]:
    """Return the ggrid of a message for each of two tenants, and of one with malware for the first."""
    found = {name: submit(house, plain_message(), f"bob@{domain}") for name, domain in DOMAINS.items()}
    found["malware"] = submit(house, malware_message(), "bob@company.example")
    wait_for(house, *found.values())
    return found


def submit(house: House, message: bytes, recipient: str) -> str:
    envelope = {**ENVELOPE, "envelopeRecipients": [recipient]}
    return str(house.client().submit(message, {"borderMtaData": envelope}).result["ggrid"])


def wait_for(house: House, *ggrids: str) -> None:
    client = house.client()
    assert wait_until(lambda: all(client.explain(ggrid).status == 200 for ggrid in ggrids), pause=0.1)


def search(guest: ConsoleGuest, text: str, more: str = "") -> set[str]:
    answer = guest.get(f"/console/messages?q={quote(text)}{more}")
    assert answer.status_code == 200, text_of(answer)
    return set(ROW.findall(answer.text))


def test_a_search_finds_by_operator_and_leads_to_the_message(house: House, sent: dict[str, str]) -> None:
    guest = sign_in(house, "analyst")
    assert sent["acme"] in search(guest, "to:company.example")
    assert sent["bank"] not in search(guest, "to:company.example")
    assert sent["malware"] in search(guest, "verdict:malware")
    assert sent["malware"] not in search(guest, "to:company.example -verdict:malware")
    assert search(guest, f"ggrid:{sent['malware']}") == {sent["malware"]}
    assert sent["acme"] in search(guest, "tenant:acme")
    assert search(guest, "from:nobody@nowhere.example") == set()
    assert guest.get(f"/console/messages/{sent['malware']}").status_code == 200


def test_a_time_range_holds(house: House, sent: dict[str, str]) -> None:
    guest = sign_in(house, "analyst")
    assert sent["acme"] in search(guest, "", "&range=1h")
    assert search(guest, "", "&range=between&since=2020-01-01T00:00&until=2020-01-02T00:00") == set()
    assert sent["acme"] in search(guest, "", "&range=between&since=2020-01-01T00:00")


def test_people_of_a_tenant_see_its_messages_alone(house: House, sent: dict[str, str]) -> None:
    guest = sign_in(house, "tenant-administrator", ["bank"])
    for text in ("", "to:company.example", "verdict:malware", "-verdict:clean", "-from:nobody.example", "hello",
                 f"ggrid:{sent['acme']}", f"ggrid:{sent['malware']}"):  # fmt: skip
        found = search(guest, text)
        assert sent["acme"] not in found, text
        assert sent["malware"] not in found, text
    assert sent["bank"] in search(guest, "")
    assert sent["bank"] in search(guest, "to:bank.example")
    rows = guest.get("/console/messages/tail/rows?tail=1")
    assert sent["bank"] in rows.text
    assert sent["acme"] not in rows.text
    both = sign_in(house, "auditor", ["bank", "acme"])
    assert {sent["bank"], sent["acme"]} <= search(both, "")


def test_the_name_of_a_foreign_tenant_is_not_told_from_one_that_does_not_exist(house: House) -> None:
    guest = sign_in(house, "analyst", ["bank"])
    answers = [guest.get(f"/console/messages?q=tenant:{name}") for name in ("acme", house.tenants["acme"], "nobody")]
    assert [answer.status_code for answer in answers] == [400] * 3
    for answer in answers:
        assert "There is no such tenant, or you may not see it." in text_of(answer)


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ("q=form:alice", 400, "Unknown operator `form:`."),
        ("q=verdict:bad", 400, "`verdict:` needs one of malware"),
        ("q=hello+ip:1.2.3", 400, "(at character 7: `ip:1.2.3`)"),
        ('q=subject:"open', 400, "is not closed"),
        ("q=" + "a" * 501, 400, "at most 500 characters"),
        ("range=9y", 400, "There is no time range of that name."),
        ("range=between&since=yesterday", 400, "a time such as"),
        ("range=between&since=2026-01-02&until=2026-01-01", 400, "ends before it begins"),
        ("before=1", 400, "is not a ggrid"),
        ("before=6f9619ff-8b86-4011-b42d-00c04fc964ff", 400, "is not a ggrid"),
    ],
)
def test_a_mistake_is_told_beside_the_box_and_finds_nothing(
    house: House, sent: dict[str, str], query: str, status: int, sentence: str
) -> None:
    answer = sign_in(house, "analyst").get(f"/console/messages?{query}")
    assert answer.status_code == status
    assert sentence in html.unescape(text_of(answer))
    assert ROW.findall(answer.text) == []


def test_new_messages_appear_to_whoever_follows(house: House, sent: dict[str, str]) -> None:
    guest = sign_in(house, "analyst", ["acme"])
    page = guest.get("/console/messages?tail=1&q=to:company.example")
    (address,) = re.findall(r'hx-get="([^"]+)"', page.text)
    ggrid = submit(house, plain_message(), "bob@company.example")
    other = submit(house, plain_message(), "bob@bank.example")
    began = time.monotonic()
    assert wait_until(lambda: ggrid in guest.get(html.unescape(address)).text, pause=0.1)
    assert time.monotonic() - began < 15
    wait_for(house, other)
    rows = guest.get(html.unescape(address)).text
    assert other not in rows
    assert "<html" not in rows


def test_hostile_subjects_and_senders_stay_text(house: House) -> None:
    hostile = hostile_strings()[::60]
    ggrids = []
    for text in hostile:
        line = text.replace("\r", " ").replace("\n", " ").replace("\x00", " ")
        message = f'From: "{line}" <a@sender.example>\r\nSubject: {line}\r\n\r\nHello\r\n'.encode("utf-8", "replace")
        ggrids.append(submit(house, message, "bob@company.example"))
    wait_for(house, *ggrids)
    guest = sign_in(house, "analyst", ["acme"])
    page = guest.get("/console/messages?q=to:company.example&range=1h")
    assert set(ggrids) <= set(ROW.findall(page.text))
    for word in ("<script>hit", "<img src=x", "<svg onload", "<iframe", "<body onload", "<details open o"):
        assert word not in page.text
    for text in hostile:
        answer = guest.get(f"/console/messages?q={quote(text)}")
        assert answer.status_code in (200, 400)
        assert "<script>" not in answer.text
