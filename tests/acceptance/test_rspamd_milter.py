"""Postfix calls Rspamd's proxy as a milter, and the proxy calls guard: how existing installations migrate."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mailwarden.crypto.keyring import read_ring
from mailwarden.quarantine.result_headers import ResultSeal
from tests.acceptance.client import envelope
from tests.acceptance.deployment import TENANTS, Deployment, in_processing, run_deployment, submitting
from tests.acceptance.pausable_clamd import PausableClamd
from tests.acceptance.rspamd_proxy import RspamdProxy, ask_as_exim, own_address
from tests.acceptance.smtp import Sink, send
from tests.waiting import wait_until
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.ports import free_port
from workshop.rig.postfix import Postfix
from workshop.rig.samples import malware_message, spam_message

pytestmark = pytest.mark.slow

PLACES = {"mainWorkerCount": 2, "maxGuardRequestsInProcessing": 2, "guardRequestThrottleThreshold": 2}


@dataclass(frozen=True)
class MilterDeployment:
    deployment: Deployment
    postfix: Postfix
    proxy: RspamdProxy
    sink: Sink
    exim_port: int  # of the proxy that speaks the older protocol

    @property
    def seal(self) -> ResultSeal:
        return ResultSeal(read_ring((self.deployment.product.abby.folder / "secrets" / "contents"), "contents.key"))


@pytest.fixture(scope="module")
def milter(engines, deployment_template, tmp_path_factory, pausable_clamd: PausableClamd) -> Iterator[MilterDeployment]:
    address = own_address()
    if address is None:
        pytest.skip("this host has no address but loopback")
    folder, port = temporary_folder(), free_port()
    guard = {
        **PLACES,
        "engines": {"clamav": {"address": pausable_clamd.address}},
        "scanSources": {
            "restApi": {},
            "rspamdApi": {"listen": {"host": address, "port": port}, "allowWithoutSecret": True},
        },
    }
    proxy = RspamdProxy(folder / "proxy", f"{address}:{port}")
    older = RspamdProxy(folder / "older", f"{address}:{port}", milter=False)
    with Sink() as sink:
        domains = tuple(domain for _, _, domain in TENANTS)
        postfix = Postfix(folder / "postfix", "milter", domains, sink.port, milter_port=proxy.port)
        try:
            with run_deployment(
                engines, deployment_template, tmp_path_factory.mktemp("milter"), guards=(guard,)
            ) as deployment:
                proxy.start()
                older.start()
                postfix.start()
                yield MilterDeployment(deployment, postfix, proxy, sink, older.port)
        finally:
            postfix.stop()
            proxy.stop()
            older.stop()
            remove_folder(folder)


def test_a_clean_message_arrives_with_the_fields(milter: MilterDeployment, plain):
    forged = b"X-Mailwarden-Verdict: malware\r\nX-Mailwarden-Tags: none\r\n" + plain
    for message in (plain, forged):
        reply = send(milter.postfix.port, message)
        assert reply.startswith("250"), (reply, milter.proxy.log.read_text("utf-8")[-3000:])
        (arrived,) = milter.sink.take()
        head = arrived.content.partition(b"\r\n\r\n")[0]
        assert head.count(b"X-Mailwarden-Verdict: clean") == 1, head
        assert b"malware" not in head
        result = milter.seal.read(arrived.content)
        assert result is not None, "signed, and right on top of what came"
        assert arrived.content.endswith(plain)


@pytest.mark.parametrize("make", [spam_message, malware_message])
def test_messages_to_hold_are_rejected_in_the_session(milter: MilterDeployment, engines, make):
    message = engines.dns.sign(make(), "pass.example")
    reply = send(milter.postfix.port, message)
    assert reply.startswith("554 5.7.1 "), reply
    assert milter.sink.empty


def test_the_envelope_comes_through_the_proxy(milter: MilterDeployment, plain):
    recipients = ("bob@company.example", "ann@company.example")
    assert send(milter.postfix.port, plain, *recipients).startswith("250")
    (arrived,) = milter.sink.take()
    result = milter.seal.read(arrived.content)
    assert result is not None
    ggrid = str(result.ggrid)
    known = milter.deployment.client().explained(ggrid)
    border = envelope(envelopeRecipients=list(recipients))["borderMtaData"]
    assert (known["source"], known["envelope"]) == ("rspamdApi", border)


def test_the_proxy_translates_the_protocol_of_exim(milter: MilterDeployment, engines, plain):
    clean = ask_as_exim(milter.exim_port, plain, "bob@company.example", "ann@company.example")
    assert clean.startswith("RSPAMD/1.3 0 EX_OK"), clean
    assert "Metric: default; False; " in clean
    assert "Action: no action" in clean
    spam = ask_as_exim(milter.exim_port, engines.dns.sign(spam_message(), "pass.example"), "bob@company.example")
    assert "Metric: default; True; 15.00 / 15.00" in spam
    assert "Action: reject" in spam


def test_when_full_the_sender_gets_4xx(milter: MilterDeployment, plain, pausable_clamd: PausableClamd):
    pausable_clamd.pause()
    with submitting(milter.deployment, plain, 2, pausable_clamd) as calls:
        assert wait_until(lambda: in_processing(milter.deployment, 0) == 2)
        reply = send(milter.postfix.port, plain)
    assert [call.result().status for call in calls] == [200, 200]
    assert reply.startswith("451 "), reply
    assert send(milter.postfix.port, plain).startswith("250")
    milter.sink.take()
