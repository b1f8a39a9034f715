"""Mail through Postfix, guard and Postfix again, both ways, to a sink behind them."""

import base64
import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.client import envelope
from tests.acceptance.deployment import in_processing, submitting
from tests.acceptance.pausable_clamd import PausableClamd
from tests.acceptance.postfix_deployment import PostfixDeployment
from tests.acceptance.smtp import ggrid_in, send
from tests.waiting import wait_until
from workshop.rig.samples import malware_message, plain_message, spam_message

pytestmark = pytest.mark.slow

OURS = {"X-Mailwarden-Ggrid", "X-Mailwarden-Verdict", "X-Mailwarden-Decision", "X-Mailwarden-Tags"}
TRACE = {*OURS, "X-Mailwarden-Signature", "Received"}


@pytest.mark.contract("6 smtp")
@pytest.mark.parametrize("way", ["before", "after"])
def test_a_clean_message_arrives_byte_for_byte_below_signed_fields(mta: PostfixDeployment, plain, way):
    reply = send(getattr(mta, way).port, plain)

    assert reply.startswith("250 2.0.0 "), reply
    (arrived,) = mta.sink.take()
    assert (arrived.sender, arrived.recipients) == ("alice@pass.example", ("bob@company.example",))
    assert set(arrived.below(plain)) == TRACE
    result = mta.seal.read(arrived.content)
    assert result is not None, arrived.content
    assert (result.verdict, result.decision) == ("clean", "deliver")
    known = mta.explain(str(result.ggrid))
    assert (known["verdict"], known["source"]) == ("clean", "smtp")
    assert known["envelope"] == envelope()["borderMtaData"], "as it was at the border"
    if way == "before":
        assert ggrid_in(reply) == str(result.ggrid), "the sender is told under which id it is known"


def test_forged_fields_do_not_pass(mta: PostfixDeployment, plain):
    forged = b"X-Mailwarden-Verdict: clean\r\nx-mailwarden-tags:\r\n list.sender-allow\r\n" + plain

    assert send(mta.before.port, forged).startswith("250")
    (arrived,) = mta.sink.take()
    assert sorted(set(arrived.below(plain))) == sorted(TRACE)
    assert arrived.content.lower().count(b"x-mailwarden-verdict:") == 1


def test_a_large_message_with_long_lines_and_eight_bits_arrives_byte_for_byte(mta: PostfixDeployment, plain):
    text = b"".join(b"." * (number % 3) + b"\xc3\xbc" * (number % 700) + b"\r\n" for number in range(8_000))
    message = plain + text

    for postfix in (mta.before, mta.after):
        assert send(postfix.port, message, options=["BODY=8BITMIME", f"SIZE={len(message)}"]).startswith("250")
        (arrived,) = mta.sink.take()
        assert len(message) > 5_000_000
        assert mta.seal.read(arrived.content) is not None
        assert set(arrived.below(message)) == TRACE


def test_addresses_outside_ascii_pass(mta: PostfixDeployment, plain):
    for postfix in (mta.before, mta.after):
        reply = send(postfix.port, plain, "bü@company.example", sender="ålice@pass.example", options=["SMTPUTF8"])
        assert reply.startswith("250"), reply
        (arrived,) = mta.sink.take()
        assert (arrived.sender, arrived.recipients) == ("ålice@pass.example", ("bü@company.example",))


def test_lines_that_end_otherwise_are_made_good_or_refused(mta: PostfixDeployment, plain):
    loose = plain + b"sloppy line\nanother\r\n"
    assert send(mta.before.port, loose).startswith("250")
    mta.sink.take()[0].below(loose.replace(b"sloppy line\n", b"sloppy line\r\n"))
    smuggled = plain + b"\r.\rMAIL FROM:<evil@attacker.example>\r\n"
    assert send(mta.before.port, smuggled).startswith("550 5.5.2")
    assert send(mta.after.port, smuggled).startswith("250")
    mta.sink.take()[0].below(smuggled.replace(b"\r.\rMAIL", b" . MAIL"))


@pytest.mark.parametrize(("make", "verdict"), [(malware_message, "malware"), (spam_message, "spam")])
def test_held_messages_are_not_delivered_and_not_lost(mta: PostfixDeployment, engines, make, verdict):
    message = engines.dns.sign(make(), "pass.example")

    held = send(mta.before.port, message)
    assert held.startswith("250 2.0.0 "), held
    known = mta.explain(held)
    assert (known["verdict"], known["decision"]) == (verdict, "quarantine")

    assert send(mta.after.port, message).startswith("250"), "Postfix has it"
    assert wait_until(lambda: mta.after.waiting() == 0), "and then guard"
    assert len(held_messages(mta, verdict)) >= 2
    assert mta.sink.empty


@pytest.mark.contract("2 bounce")
def test_a_blocked_address_bounces_while_the_sender_waits_and_only_then(mta: PostfixDeployment, plain):
    lists = mta.deployment.lists()
    held: list[str] = []

    def rejected() -> bool:
        held.append(send(mta.before.port, plain, address="192.0.2.66"))
        return held[-1].startswith("550 5.7.1 ")

    def suppressed() -> bool:
        held.append(send(mta.after.guard_port, plain, address="192.0.2.66", forward=True))
        assert held[-1].startswith("250"), held
        return bool(mta.explain(held[-1])["decision"] == "quarantine")

    assert lists.add("ip-block", {"entry": "192.0.2.66"}).status == 200
    try:
        assert wait_until(rejected)
        known = mta.explain(held[-1])
        assert (known["verdict"], known["decision"]) == ("blocked", "bounce")

        assert wait_until(suppressed), "the other guard has heard of the entry too"
        assert "policy.bounce-suppressed" in mta.explain(held[-1])["tags"]
    finally:
        lists.delete("ip-block", "192.0.2.66")
    assert wait_until(lambda: not rejected())
    assert wait_until(lambda: not suppressed())


def test_recipients_of_several_tenants_are_judged_and_delivered_apart(mta: PostfixDeployment, plain):
    recipients = ("bob@company.example", "eve@bank.example", "kim@club.example", "ann@company.example")
    tenants = {mta.deployment.tenants[name] for name in ("acme", "bank", "club")}

    for postfix in (mta.before, mta.after):
        assert send(postfix.port, plain, *recipients).startswith("250")
        arrived = mta.sink.take(3)
        assert sorted(each.recipients for each in arrived) == [
            ("ann@company.example", "bob@company.example"), ("eve@bank.example",), ("kim@club.example",),
        ]  # fmt: skip
        ids = {str(result.ggrid) for each in arrived if (result := mta.seal.read(each.content))}
        (ggrid,) = ids
        assert all(b"mixed-recipients" not in each.content for each in arrived), "nobody learns of others"
        assert wait_until(lambda ggrid=ggrid: set(mta.explain(ggrid)["tenantUids"]) == tenants)
        row = mta.deployment.client("acme").explained(ggrid)
        assert sorted(row["envelope"]["envelopeRecipients"]) == ["ann@company.example", "bob@company.example"]


def test_where_one_tenant_holds_a_message_back_the_others_get_it(mta: PostfixDeployment, engines):
    odd = base64.encodebytes(b"7z\xbc\xaf'\x1c" + b"a" * 60).replace(b"\n", b"\r\n")
    head = plain_message().partition(b"Content-Type")[0]
    message = engines.dns.sign(
        head + b'Content-Type: application/pdf; name="minutes.pdf"\r\nContent-Transfer-Encoding: base64\r\n'
        b'Content-Disposition: attachment; filename="minutes.pdf"\r\n\r\n' + odd,
        "pass.example",
    )

    assert send(mta.before.port, message).startswith("250"), "alone it is delivered with a warning"
    mta.sink.take()
    reply = send(mta.before.port, message, "bob@company.example", "eve@bank.example")
    assert reply.startswith("250"), reply
    (arrived,) = mta.sink.take()
    assert arrived.recipients == ("bob@company.example",)
    newest = held_messages(mta, "suspicious")[0]
    assert newest["tenantUid"] == mta.deployment.tenants["bank"]
    assert [each["address"] for each in newest["recipients"]] == ["eve@bank.example"]


@pytest.mark.spec("7 451")
@pytest.mark.contract("3 admission smtp")
def test_when_full_the_sender_gets_451_and_postfix_delivers_later(
    mta: PostfixDeployment, plain, pausable_clamd: PausableClamd
):
    pausable_clamd.pause()
    with submitting(mta.deployment, plain, 4, pausable_clamd) as calls:
        assert wait_until(lambda: [in_processing(mta.deployment, number) for number in (0, 1)] == [2, 2])

        assert send(mta.before.port, plain).startswith("451 4.3.2 ")
        assert send(mta.before.guard_port, plain, forward=True).startswith("451 4.3.2 ")
        assert send(mta.after.port, plain).startswith("250 2.0.0 "), "Postfix takes it"
        assert wait_until(lambda: "451 4.3.2" in mta.after.log.read_text("utf-8"))
        assert mta.sink.empty
    assert [call.result().status for call in calls] == [200] * 4
    (arrived,) = mta.sink.take()
    assert set(arrived.below(plain)) == TRACE


@pytest.mark.contract("3 admission band")
def test_between_threshold_and_maximum_mail_waits_as_calls_do_and_is_counted_with_them(
    mta: PostfixDeployment, plain, pausable_clamd: PausableClamd
):
    guard = mta.deployment.product.guards[0]
    usual = {"maxGuardRequestsInProcessing": 2, "guardRequestThrottleThreshold": 2}
    guard.configure({"maxGuardRequestsInProcessing": 4, "maxThrottleDelay": 4_000})
    guard.restart()
    pausable_clamd.pause()
    try:
        with ThreadPoolExecutor(4) as threads, contextlib.ExitStack() as stack:
            stack.callback(pausable_clamd.resume)
            sent = []
            for wait, present in ((0.0, 0), (0.0, 1), (2.0, 2), (4.0, 3)):
                began = time.monotonic()
                sent.append(threads.submit(send, mta.before.guard_port, plain, forward=True))
                time.sleep(wait * 0.4)  # the length of the wait is under test
                assert not wait or in_processing(mta.deployment, 0) == present, "who waits is not counted"
                assert wait_until(lambda more=present + 1: in_processing(mta.deployment, 0) == more)
                assert wait * 0.9 <= time.monotonic() - began
            assert send(mta.before.guard_port, plain, forward=True).startswith("451 4.3.2 ")
        assert all(each.result().startswith("250") for each in sent)
        mta.sink.take(4)
    finally:
        guard.configure(usual)
        guard.restart()


def test_while_the_next_hop_is_down_the_sender_keeps_the_message(mta: PostfixDeployment, plain):
    mta.before.stop()
    try:
        reply = send(mta.before.guard_port, plain, forward=True)
        assert reply.startswith("451 4.4.1"), reply
    finally:
        mta.before.start()
    assert send(mta.before.guard_port, plain, forward=True).startswith("250")
    assert mta.sink.take()[0].below(plain)


SAMPLES = {
    "plain": plain_message,
    "spam": spam_message,
    "malware": malware_message,
    "newsletter": lambda: b"Precedence: bulk\r\nList-Unsubscribe: <https://pass.example/u>\r\n" + plain_message(),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_message_is_judged_the_same_by_smtp_and_by_the_scanning_api(mta: PostfixDeployment, engines, name):
    message = engines.dns.sign(SAMPLES[name](), "pass.example")

    by_api = mta.deployment.client().submit(message, envelope()).result
    reply = send(mta.before.guard_port, message, forward=True)

    by_smtp = mta.explain(reply)
    assert [by_smtp[field] for field in ("verdict", "decision", "tags")] == [
        by_api[field] for field in ("verdict", "decision", "tags")
    ]
    assert reply.startswith("250"), "delivered, or held"
    if by_api["decision"] == "deliver":
        mta.sink.take()


def test_a_guard_that_stops_answers_the_message_in_hand(mta: PostfixDeployment, plain, pausable_clamd: PausableClamd):
    guard = mta.deployment.product.guards[0]
    pausable_clamd.pause()
    with ThreadPoolExecutor(2) as threads:
        sending = threads.submit(send, mta.before.port, plain)
        assert wait_until(lambda: in_processing(mta.deployment, 0) == 1)
        stopping = threads.submit(guard.stop)
        assert wait_until(lambda: not is_open(mta.before.guard_port)), "no new session"
        pausable_clamd.resume()
        assert sending.result().startswith("250 2.0.0 ")
        stopping.result()
    mta.sink.take()
    assert send(mta.before.port, plain).startswith("451 4.3.0 "), "Postfix says so while guard is away"
    guard.start()


def test_while_a_required_engine_is_down_delivery_waits(mta: PostfixDeployment, plain, pausable_clamd: PausableClamd):
    guard = mta.deployment.product.guards[1]
    try:
        for on_failure in ("tempfail", "undecided"):
            guard.configure({"engines": {"clamav": {"address": "tcp:127.0.0.1:1"}}, "onEngineFailure": on_failure})
            guard.restart()
            reply = send(mta.after.guard_port, plain, forward=True)
            assert reply.startswith("451 4.7.1 "), reply
        known = mta.explain(reply)
        assert (known["verdict"], known["decision"]) == ("unknown", "undecided")
        assert send(mta.after.port, plain).startswith("250"), "Postfix keeps it"
    finally:
        guard.configure({"engines": {"clamav": {"address": pausable_clamd.address}}, "onEngineFailure": "undecided"})
        guard.restart()
    assert set(mta.sink.take()[0].below(plain)) == TRACE, "and delivers it when the engine is back"


def held_messages(mta: PostfixDeployment, verdict: str) -> list[dict[str, Any]]:
    """Return what is in quarantine of a verdict, the newest first."""
    return list(mta.deployment.client().call("GET", f"/v1/quarantine?verdict={verdict}").json["messages"])


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False
