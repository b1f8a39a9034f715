"""Held, told of and released through Postfix: what was held arrives byte for byte when released, and only then."""

import base64
import json
import re
from email import message_from_bytes
from typing import Any
from uuid import uuid4

import pytest

from tests.acceptance.deployment import run_command
from tests.acceptance.held import age
from tests.acceptance.postfix_deployment import PostfixDeployment
from tests.acceptance.smtp import send
from tests.waiting import wait_until
from workshop.rig.samples import malware_message, spam_message

pytestmark = pytest.mark.slow
TWO = ("ann@company.example", "bob@company.example")


def spam(engines) -> tuple[str, bytes]:
    """Return a message that is held, and what names it."""
    mark = uuid4().hex
    message = spam_message().replace(b"Subject: ", f"Subject: {mark} ".encode(), 1)
    return mark, engines.dns.sign(message, "pass.example")


def held(mta: PostfixDeployment, mark: str) -> dict[str, Any]:
    found = mta.deployment.client().call("GET", f"/v1/quarantine?text={mark}").json["messages"]
    assert len(found) == 1, found
    return dict(found[0])


def states(mta: PostfixDeployment, uid: str) -> list[str]:
    """Return what became of it for the recipients in the order of their names, for Postfix orders them, too."""
    recipients = mta.deployment.client().call("GET", f"/v1/quarantine/{uid}").json["recipients"]
    return [each["state"] for each in sorted(recipients, key=lambda each: str(each["address"]))]


def release(mta: PostfixDeployment, uid: str, **order: object) -> int:
    path, body = f"/v1/quarantine/{uid}/release", json.dumps(order).encode()
    headers = {"Content-Type": "application/json"}
    return mta.deployment.client().call("POST", path, headers=headers, data=body).status


@pytest.mark.contract("6 smtp")
@pytest.mark.parametrize("way", ["before", "after"])
def test_a_held_message_arrives_when_it_is_released_and_not_before(mta: PostfixDeployment, engines, way):
    mark, message = spam(engines)
    postfix = getattr(mta, way)
    assert send(postfix.port, message, *TWO).startswith("250")
    assert wait_until(lambda: postfix.waiting() == 0)
    assert mta.sink.empty

    uid = held(mta, mark)["uid"]
    assert release(mta, uid, recipients=[TWO[1]]) == 202
    (first,) = mta.sink.take()
    assert first.recipients == TWO[1:]
    assert set(first.below(message)) == {"Received"}, "as it came, but for the way it went"
    assert wait_until(lambda: states(mta, uid) == ["held", "released"])

    assert taught(mta, mark) == [], "a release alone teaches nothing"
    assert release(mta, uid, train=True) == 202
    (second,) = mta.sink.take()
    assert second.recipients == TWO[:1]
    assert wait_until(lambda: states(mta, uid) == ["released", "released"])
    assert wait_until(lambda: taught(mta, mark) == ["released"]), "and it is learned from"


def taught(mta: PostfixDeployment, mark: str) -> list[str]:
    tenant = mta.deployment.tenants["acme"]
    reports = mta.deployment.client().call("GET", f"/v1/reports?tenantUid={tenant}").json["reports"]
    return [each["kind"] for each in reports if mark in each["subject"]]


def test_a_release_without_next_hop_keeps_the_message_with_the_reason(mta: PostfixDeployment, engines):
    mark, message = spam(engines)
    assert send(mta.before.port, message).startswith("250")
    uid = held(mta, mark)["uid"]
    mta.before.stop()
    try:
        assert release(mta, uid) == 202
        assert wait_until(lambda: states(mta, uid) == ["held"])
        assert held(mta, mark)["recipients"][0]["failure"].startswith("451 4.4.1")
    finally:
        mta.before.start()
    assert release(mta, uid) == 202
    assert mta.sink.take()[0].below(message)


def test_malware_stays(mta: PostfixDeployment, engines):
    message = engines.dns.sign(malware_message(), "pass.example")
    assert send(mta.before.port, message).startswith("250")
    found = mta.deployment.client().call("GET", "/v1/quarantine?verdict=malware").json["messages"]
    assert release(mta, found[0]["uid"]) == 409
    assert mta.sink.empty


def test_a_vault_that_is_full_or_gone_makes_the_sender_keep_the_message(mta: PostfixDeployment, engines):
    mark, message = spam(engines)
    vault = mta.deployment.product.guards[0].folder / "quarantine"
    aside = vault.rename(vault.with_name("aside"))
    vault.write_text("no folder")
    try:
        reply = send(mta.before.port, message)
        assert reply.startswith("451 4.3.0"), reply
    finally:
        vault.unlink()
        aside.rename(vault)
    assert mta.deployment.client().call("GET", f"/v1/quarantine?text={mark}").json["messages"] == []
    assert send(mta.before.port, message).startswith("250"), "and it is taken when it is there again"
    assert held(mta, mark)["stored"]


@pytest.mark.parametrize("way", ["before", "after"])
def test_a_release_through_guard_passes_by_its_token(mta: PostfixDeployment, engines, way):
    postfix = getattr(mta, way)
    guard = mta.deployment.product.guards[("before", "after").index(way)]
    guard.configure({"quarantine": {"releaseTo": f"127.0.0.1:{postfix.port}"}})
    guard.restart()
    try:
        mark, message = spam(engines)
        assert send(postfix.port, message, *TWO).startswith("250")
        assert wait_until(lambda: postfix.waiting() == 0)
        uid = held(mta, mark)["uid"]
        assert release(mta, uid) == 202
        arrived = mta.sink.take(2)
        assert sorted(each.recipients for each in arrived) == [(each,) for each in TWO], "each by a pass of their own"
        for each in arrived:
            assert set(each.below(message)) == {"Received"}, "the pass is taken out"
        assert wait_until(lambda: states(mta, uid) == ["released", "released"])
        assert held(mta, mark)["uid"] == uid, "and it is held no second time"
    finally:
        guard.configure({"quarantine": {"releaseTo": ""}})
        guard.restart()


@pytest.mark.contract("3 quarantine digest")
def test_a_digest_arrives_and_its_button_releases_the_message_to_one_recipient(mta: PostfixDeployment, engines):
    mark, message = spam(engines)
    assert send(mta.before.port, message, *TWO).startswith("250")
    uid = held(mta, mark)["uid"]
    age(mta.deployment, uid)  # so that the hour has passed since, whatever the time is
    guard, folder = mta.deployment.product.guards[0], str(mta.deployment.product.abby.folder)
    settings = {"sender": "quarantine@company.example", "link": mta.deployment.product.url, "hour": 0}
    run_command("quarantine", "digest", "acme", "--on", "--config", folder)
    guard.configure({"quarantine": {"digest": settings}})
    guard.restart()
    try:
        reported = {each.recipients: each for each in mta.sink.take(2)}
        assert sorted(reported) == [TWO[:1], TWO[1:]]
        assert {each.sender for each in reported.values()} <= {"", "<>"}
        digest = message_from_bytes(reported[TWO[1:]].content)
        assert (digest["Auto-Submitted"], digest["Subject"]) == ("auto-generated", "Held for you: 1 message")
        plain: Any = digest.get_payload(0)
        text = base64.b64decode(plain.get_payload()).decode()
        assert mark in text
        (path,) = re.findall(rf"{mta.deployment.product.url}(/held/\S+)", text)
        stranger = mta.deployment.client().using(None)
        for _ in range(2):  # as programs do that look into mail
            assert mark in stranger.call("GET", path).body.decode()
        assert states(mta, uid) == ["held", "held"]
        assert mta.sink.empty

        assert "on its way" in stranger.call("POST", path).body.decode()
        (arrived,) = mta.sink.take()
        assert arrived.recipients == TWO[1:]
        assert set(arrived.below(message)) == {"Received"}
        assert wait_until(lambda: states(mta, uid) == ["held", "released"], 10.0)
        assert "released already" in stranger.call("POST", path).body.decode()
        assert states(mta, uid) == ["held", "released"]
        assert taught(mta, mark) == [], "one recipient's wish teaches the tenant nothing"
    finally:
        run_command("quarantine", "digest", "acme", "--off", "--config", folder)  # and nobody is told any more
