"""Lists acting on scans: entries go in through the List API, and messages come out otherwise than before."""

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.acceptance.client import Client, envelope
from tests.acceptance.deployment import Deployment, wait_for_lists
from tests.acceptance.list_client import modified
from tests.acceptance.test_verdicts import FORM_PAGE, message, with_program
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.samples import EICAR, malware_message, plain_message, spam_message

# What an acting change may take, over all guards.
PROMISED = 2.0
PROGRAM = b"@echo off\r\necho hello"
FORM = message(FORM_PAGE.replace("collect.attacker.example", "forms.partner.example"), "text/html")
LINK = message("See https://login.thief.example/account/pay?id=7 for more.")

# What the tenant `club` and the deployment have in their lists while this file is tested; each value for one test.
TENANT = {
    "sender-block": ("blocked@pass.example", "rival@pass.example"),
    "sender-allow": ("friend@pass.example", "both@pass.example", "forged@pass.example"),
    "ip-block": ("198.51.100.64/28",),
    "ip-allow": ("192.0.2.11",),
    "url-block": ("*.thief.example", "thief.example.com"),
    "url-allow": ("forms.partner.example/take",),
    "file-hash-block": (
        hashlib.sha256(PROGRAM + b"1").hexdigest(),
        hashlib.sha1(PROGRAM + b"2").hexdigest(),
        hashlib.md5(PROGRAM + b"3").hexdigest(),
    ),
    "file-hash-allow": (hashlib.sha256(EICAR).hexdigest(),),
    "attachment-block": (".iso",),
    "subject-block": ("you have won", "/^Invoice [0-9]{6}$/"),
    "recipient-exempt": ("abuse@club.example",),
    "simulation-senders": ("198.51.100.200",),
    "protected-people": ("Grace Hopper <grace@club.example>",),
    "protected-domains": ("quarantime.example",),
}
GLOBAL = {
    "sender-block": ("both@pass.example", "everywhere@pass.example"),
    "sender-allow": ("rival@pass.example",),
}


@pytest.fixture(scope="module", autouse=True)
def entries(deployment: Deployment) -> Iterator[None]:
    scopes = ((deployment.lists(tenant="club"), TENANT), (deployment.lists(), GLOBAL))
    for lists, content in scopes:
        for name, texts in content.items():
            records = [{"entry": text, "comment": f"Ticket about {name}"} for text in texts]
            assert modified(lists.add(name, *records)) == len(texts)
    wait_for_lists(deployment)
    yield
    for lists, content in scopes:
        for name, texts in content.items():
            lists.delete(name, *texts)
    wait_for_lists(deployment)


Scan = Callable[..., dict[str, Any]]


@pytest.fixture
def scan(client: Client, deployment: Deployment, engines: Engines) -> Scan:
    """Return what scans a message as the tenant's own, signed by its sender's domain unless told otherwise."""

    def submit(raw: bytes, *, signed: str = "pass.example", tenant: str = "club", **changes: object) -> dict[str, Any]:
        record = envelope(**{"envelopeRecipients": ["bob@club.example"], **changes})
        whole = engines.dns.sign(raw, signed) if signed else raw
        return client.submit(whole, record, tenant=deployment.tenants[tenant]).result

    return submit


def outcome(result: Mapping[str, Any]) -> tuple[str, str]:
    return result["verdict"], result["decision"]


def from_sender(name: str, raw: bytes | None = None) -> bytes:
    return (raw or plain_message()).replace(b"alice@pass.example", f"{name}@pass.example".encode())


def with_file(content: bytes, name: bytes = b"minutes.bin") -> bytes:
    return with_program().replace(PROGRAM, content).replace(b"minutes.bat", name)


CASES = [
    ("sender-block", {"raw": from_sender("blocked")}, ("blocked", "quarantine"), {"list.sender-block"}),
    ("sender-block", {"raw": plain_message(), "envelopeFrom": "blocked@pass.example"}, ("blocked", "quarantine"),
     {"list.sender-block"}),
    ("sender-allow", {"raw": from_sender("friend")}, ("clean", "deliver"),
     {"list.sender-allow"}),
    ("ip-block", {"raw": plain_message(), "remoteAddress": "198.51.100.70"}, ("blocked", "quarantine"),
     {"list.ip-block", "policy.bounce-suppressed"}),
    ("ip-allow", {"raw": spam_message(), "remoteAddress": "192.0.2.11"}, ("spam", "deliver"),
     {"list.ip-allow", "policy.allow-override"}),
    ("url-block", {"raw": LINK}, ("phishing", "quarantine"), {"list.url-block"}),
    ("url-block", {"raw": message("Pay at Thief.example.com/now, today.")}, ("phishing", "quarantine"),
     {"list.url-block"}),
    ("url-allow", {"raw": FORM}, ("clean", "deliver"), {"list.url-allow"}),
    ("file-hash-block", {"raw": with_file(PROGRAM + b"1")}, ("malware", "quarantine"), {"list.file-hash-block"}),
    ("file-hash-block", {"raw": with_file(PROGRAM + b"2")}, ("malware", "quarantine"), {"list.file-hash-block"}),
    ("file-hash-block", {"raw": with_file(PROGRAM + b"3")}, ("malware", "quarantine"), {"list.file-hash-block"}),
    ("file-hash-allow", {"raw": with_file(EICAR)}, ("malware", "deliver"),
     {"list.file-hash-allow", "policy.allow-override"}),
    ("attachment-block", {"raw": with_file(b"nothing", b"disk.ISO")}, ("blocked", "quarantine"),
     {"list.attachment-block"}),
    ("subject-block", {"raw": plain_message(subject="YOU  have won!")}, ("blocked", "quarantine"),
     {"list.subject-block"}),
    ("subject-block", {"raw": b"Subject: Minutes\r\n" + plain_message(subject="You have won")},
     ("blocked", "quarantine"), {"list.subject-block"}),
    ("subject-block", {"raw": plain_message(subject="Invoice 471100")}, ("blocked", "quarantine"),
     {"list.subject-block"}),
    ("recipient-exempt", {"raw": LINK, "envelopeRecipients": ["Abuse@club.example"]}, ("phishing", "deliver"),
     {"list.recipient-exempt"}),
    ("simulation-senders", {"raw": LINK, "remoteAddress": "198.51.100.200"}, ("phishing", "deliver"),
     {"list.simulation-senders", "policy.simulation"}),
    ("protected-people", {"raw": plain_message().replace(b"From: Alice", "From: Grасе Hорреr".encode())},
     ("suspicious", "deliver"), {"sender.vip-impersonation", "list.protected-people"}),
    ("protected-people", {"raw": plain_message().replace(b"From: Alice", b"From: Grace Hopper")},
     ("suspicious", "deliver"), {"sender.vip-impersonation", "list.protected-people"}),
    ("protected-domains", {"raw": plain_message("x@quarantine.example"), "signed": "quarantine.example"},
     ("suspicious", "deliver"), {"sender.lookalike-domain", "list.protected-domains"}),
]  # fmt: skip


@pytest.mark.contract("2 blocked", "4 effects", "4 two seconds", "2 allow lists")
@pytest.mark.parametrize(("name", "sent", "expected", "tags"), CASES)
def test_each_list_acts_on_its_own_tenants_messages_in_every_guard(name, sent, expected, tags, scan, deployment):
    for _ in deployment.product.guards:  # one scan for each guard, for abby takes them in turn
        result = scan(**sent)
        assert outcome(result) == expected
        assert tags <= set(result["tags"])
    others = scan(**sent, tenant="acme")
    assert [tag for tag in others["tags"] if tag.startswith("list.")] == []


@pytest.mark.contract("3 explanation")
@pytest.mark.parametrize(
    ("raw", "changes", "entry", "list_name"),
    [
        (from_sender("blocked"), {}, "blocked@pass.example", "sender-block"),
        (LINK, {}, "*.thief.example", "url-block"),
        (spam_message(), {"remoteAddress": "192.0.2.11"}, "192.0.2.11", "ip-allow"),
        (LINK, {"remoteAddress": "198.51.100.200"}, "198.51.100.200", "simulation-senders"),
    ],
)
def test_the_explanation_names_the_entry_its_scope_and_its_comment(raw, changes, entry, list_name, scan, client):
    result = scan(raw, **changes)
    explained = client.explained(result["ggrid"])
    won = explained["listEntry"]
    assert (won["listName"], won["entry"], won["scope"]) == (list_name, entry, "tenant")
    assert won["comment"] == f"Ticket about {list_name}"
    assert any(entry in step["outcome"] and won["comment"] in step["outcome"] for step in explained["decisionTrace"])
    assert {"lists"} <= {engine["analyzer"] for engine in explained["engines"]}


@pytest.mark.contract("2 precedence")
def test_a_tenants_entry_beats_a_global_one_in_both_directions(scan):
    assert outcome(scan(from_sender("both"))) == ("clean", "deliver")
    assert outcome(scan(from_sender("both"), tenant="acme")) == ("blocked", "quarantine")
    assert outcome(scan(from_sender("rival"))) == ("blocked", "quarantine")


@pytest.mark.contract("2 precedence")
def test_a_global_entry_acts_for_every_tenant(scan):
    for tenant in ("club", "acme", "bank"):
        result = scan(from_sender("everywhere"), tenant=tenant)
        assert outcome(result) == ("blocked", "quarantine")


@pytest.mark.contract("2 sender allow")
def test_an_allowed_sender_counts_only_if_authenticated(scan):
    proved = scan(from_sender("forged", LINK))
    assert outcome(proved)[0] == "phishing"  # the tenant's own url-block stands beside it, and block beats allow
    forged = scan(from_sender("forged"), signed="", remoteAddress="203.0.113.77", senderHelo="else.example")
    assert "policy.allow-unauthenticated" in forged["tags"]
    assert "list.sender-allow" not in forged["tags"]


@pytest.mark.contract("2 allow lists")
def test_an_allowed_sender_changes_the_decision_and_not_the_verdict(scan):
    page = message(FORM_PAGE, "text/html")
    assert outcome(scan(page)) == ("phishing", "quarantine")
    result = scan(from_sender("friend", page))
    assert outcome(result) == ("phishing", "deliver")
    assert {"list.sender-allow", "policy.allow-override"} <= set(result["tags"])


@pytest.mark.contract("2 malware floor")
def test_nothing_but_the_exact_file_delivers_malware(scan):
    friend = from_sender("friend", malware_message()).replace(EICAR, EICAR + b" ")
    for changes in ({}, {"envelopeRecipients": ["abuse@club.example"]}, {"remoteAddress": "198.51.100.200"}):
        assert outcome(scan(friend, **changes)) == ("malware", "quarantine")
    beside = malware_message().replace(b"Dear Bob,", EICAR)  # the allowed file, and the same malware as the text
    assert outcome(scan(beside)) == ("malware", "quarantine")


@pytest.mark.contract("2 several recipients")
def test_one_recipient_without_exemption_decides_for_all(scan):
    both = ["abuse@club.example", "bob@club.example"]
    assert outcome(scan(LINK, envelopeRecipients=both)) == ("phishing", "quarantine")


@pytest.mark.contract("4 two seconds")
def test_a_change_acts_within_two_seconds_and_so_does_its_withdrawal(scan, deployment):
    lists = deployment.lists(tenant="club")
    raw = from_sender("briefly")
    took = []
    for change, expected in ((lists.add, "blocked"), (lists.delete, "clean")) * 3:
        assert modified(change("sender-block", "briefly@pass.example")) == 1
        began = time.monotonic()
        wait_for_lists(deployment)
        took.append(time.monotonic() - began)
        assert [scan(raw)["verdict"] for _ in range(4)] == [expected] * 4
    assert statistics.median(took) < PROMISED, took


@pytest.mark.contract("4 record")
def test_an_entry_that_acted_has_its_hits_counted(scan, deployment):
    lists = deployment.lists(tenant="club")
    scan(from_sender("blocked"))

    def counted() -> bool:
        record = next(each for each in lists.entries("sender-block") if each["entry"] == "blocked@pass.example")
        return record["hits"] > 0 and record["lastHit"] is not None

    assert wait_until(counted, pause=0.5)
