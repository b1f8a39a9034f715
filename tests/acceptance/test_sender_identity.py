"""One sender per message: an ambiguous sender is held, whatever lists allow."""

import pytest

from tests.acceptance.client import envelope
from tests.acceptance.deployment import wait_for_lists
from tests.acceptance.list_client import modified
from tests.acceptance.test_verdicts import FORM_PAGE, message
from workshop.rig.samples import plain_message

PHISHING = message(FORM_PAGE, "text/html")
RELAY, SIMULATOR, STRANGER = "192.0.2.11", "203.0.113.25", "198.51.100.66"
ENTRIES = {
    "sender-allow": ("pass.example", "company.example"),
    "ip-allow": ("192.0.2.10",),
    "simulation-senders": (SIMULATOR, "pass.example"),
    "recipient-exempt": ("abuse@club.example",),
    "trusted-relays": (RELAY,),
    "ip-block": (STRANGER,),
}
PASSES = {"auth.aligned", "auth.spf-pass", "auth.dkim-pass", "auth.dmarc-pass"}
AMBIGUOUS = {
    "two From fields": lambda raw: b"From: boss@company.example\r\n" + raw,
    "a space before the colon": lambda raw: b"From : boss@company.example\r\n" + raw,
    "only with a space before the colon": lambda raw: raw.replace(b"From:", b"From :"),
    "a space in the address": lambda raw: raw.replace(b"alice@pass", b"boss@company.example alice@pass"),
    "a name that hides an address": lambda raw: raw.replace(b"Alice <", b"=?utf-8?q?b=40company.example=2C?= <"),
    "two organisations": lambda raw: raw.replace(b"From: Alice", b"From: boss@company.example, Alice"),
    "a line break of another kind": lambda raw: b"X: y\x0bFrom: boss@company.example\r\n" + raw,
    "a blank line": lambda raw: b"X: y\r\n \r\n" + raw,
}


@pytest.fixture(scope="module", autouse=True)
def entries(deployment):
    lists = deployment.lists(tenant="club")
    for name, texts in ENTRIES.items():
        assert modified(lists.add(name, *({"entry": text} for text in texts))) == len(texts)
    wait_for_lists(deployment)
    yield
    for name, texts in ENTRIES.items():
        lists.delete(name, *texts)
    wait_for_lists(deployment)


@pytest.fixture
def scan(client, deployment, engines):
    def submit(raw, *, signed=True, **changes):
        record = envelope(**{"envelopeRecipients": ["bob@club.example"], **changes})
        whole = engines.dns.sign(raw, "pass.example") if signed else raw
        return client.submit(whole, record, tenant=deployment.tenants["club"]).result

    return submit


def test_the_lists_let_the_same_message_of_one_sender_through(scan):
    result = scan(PHISHING)
    assert (result["verdict"], result["decision"]) == ("phishing", "deliver")
    assert {"auth.aligned", "policy.simulation"} <= set(result["tags"])


@pytest.mark.contract("8 One sender identity per message")
@pytest.mark.parametrize("name", AMBIGUOUS)
@pytest.mark.parametrize("recipient", ["bob@club.example", "abuse@club.example"])
def test_no_list_lets_an_ambiguous_sender_through(scan, name, recipient):
    for raw in (plain_message(), PHISHING):
        result = scan(AMBIGUOUS[name](raw), signed=False, envelopeRecipients=[recipient])
        assert result["decision"] == "quarantine", name
        assert result["verdict"] != "clean"
        assert "sender.ambiguous" in result["tags"]
        assert not PASSES & set(result["tags"])
        allowed = {"list.sender-allow", "list.ip-allow", "list.simulation-senders", "list.recipient-exempt"}
        assert not {*allowed, "policy.allow-override"} & set(result["tags"])


@pytest.mark.contract("8 One sender identity per message")
@pytest.mark.parametrize("tenant", ["acme", "bank"])
def test_an_ambiguous_sender_is_held_in_every_profile(client, deployment, tenant):
    recipient = {"acme": "bob@company.example", "bank": "eve@bank.example"}[tenant]
    for change in AMBIGUOUS.values():
        assert client.submit(change(plain_message()), envelope(envelopeRecipients=[recipient])).outcome == (
            "suspicious",
            "quarantine",
        )


@pytest.mark.parametrize("sender", ["x@pass.example y@company.example", "a@pass.example@company.example", "a b"])
def test_an_envelope_sender_that_is_no_address_is_refused(client, plain, sender):
    answer = client.submit(plain, envelope(envelopeFrom=sender))
    assert (answer.status, answer.error) == (400, "schema_violation")
    assert answer.json["details"][0]["pointer"] == "/borderMtaData/envelopeFrom"


@pytest.mark.contract("8 Trusted relays")
@pytest.mark.parametrize("ehlo", [f"[{SIMULATOR}]", f"x?(y?[{SIMULATOR}])", "mail.north.example"])
def test_an_ehlo_name_is_not_the_address_behind_a_trusted_relay(scan, ehlo):
    line = f"Received: from {ehlo} (unknown [{STRANGER}]) by relay.acme.example (Postfix) with ESMTP id 4X; now\r\n"
    raw = line.encode() + PHISHING.replace(b"alice@pass.example", b"alice@bare.example")
    result = scan(raw, signed=False, remoteAddress=RELAY, envelopeFrom="alice@bare.example")
    assert (result["verdict"], result["decision"]) == ("phishing", "quarantine")
    assert "policy.simulation" not in result["tags"]
    assert ("list.ip-block" in result["tags"]) is ("(y" not in ehlo), "the block acts unless the walk ended"


def test_a_simulation_behind_a_trusted_relay_is_known_by_its_address(scan):
    line = f"Received: from x (unknown [{SIMULATOR}]) by relay.acme.example (Postfix) with ESMTP id 4X; now\r\n"
    raw = line.encode() + PHISHING.replace(b"alice@pass.example", b"alice@bare.example")
    result = scan(raw, signed=False, remoteAddress=RELAY, envelopeFrom="alice@bare.example")
    assert (result["verdict"], result["decision"]) == ("phishing", "deliver")


def test_no_from_is_no_authenticated_sender(scan):
    result = scan(plain_message().replace(b"From:", b"X-From:"), signed=False)
    assert "auth.aligned" not in result["tags"]
    assert "list.sender-allow" not in result["tags"]
