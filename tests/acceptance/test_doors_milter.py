"""Postfix asks Rspamd's proxy by its milter, and the proxy asks the door: existing installations switch so."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mailwarden.crypto.keyring import read_ring
from mailwarden.guard.result_headers import ResultSeal
from rig.folders import remove_folder, temporary_folder
from rig.ports import free_port
from rig.postfix import Postfix
from rig.samples import malware_message, spam_message
from tests.acceptance.client import envelope, wait_until
from tests.acceptance.house import TENANTS, House, in_processing, open_house, submitting
from tests.acceptance.post import Sink, send
from tests.acceptance.rspamd_proxy import RspamdProxy, ask_as_exim, own_address
from tests.acceptance.sluice import Sluice

pytestmark = pytest.mark.slow

PLACES = {"mainWorkerCount": 2, "maxGuardRequestsInProcessing": 2, "guardRequestThrottleThreshold": 2}


@dataclass(frozen=True)
class Switched:
    house: House
    postfix: Postfix
    proxy: RspamdProxy
    sink: Sink
    exim_port: int  # of the proxy that speaks the older protocol

    @property
    def seal(self) -> ResultSeal:
        return ResultSeal(read_ring((self.house.product.abby.folder / "secrets" / "contents"), "contents.key"))


@pytest.fixture(scope="module")
def switched(engines, town, tmp_path_factory, sluice: Sluice) -> Iterator[Switched]:
    address = own_address()
    if address is None:
        pytest.skip("this host has no address but loopback")
    folder, port = temporary_folder(), free_port()
    guard = {
        **PLACES,
        "engines": {"clamav": {"address": sluice.address}},
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
            with open_house(engines, town, tmp_path_factory.mktemp("milter"), guards=(guard,)) as house:
                proxy.start()
                older.start()
                postfix.start()
                yield Switched(house, postfix, proxy, sink, older.port)
        finally:
            postfix.stop()
            proxy.stop()
            older.stop()
            remove_folder(folder)


def test_a_clean_message_arrives_with_the_fields(switched: Switched, plain):
    forged = b"X-Mailwarden-Verdict: malware\r\nX-Mailwarden-Tags: none\r\n" + plain
    for message in (plain, forged):
        reply = send(switched.postfix.port, message)
        assert reply.startswith("250"), (reply, switched.proxy.log.read_text("utf-8")[-3000:])
        (arrived,) = switched.sink.take()
        head = arrived.content.partition(b"\r\n\r\n")[0]
        assert head.count(b"X-Mailwarden-Verdict: clean") == 1, head
        assert b"malware" not in head
        result = switched.seal.read(arrived.content)
        assert result is not None, "signed, and right on top of what came"
        assert arrived.content.endswith(plain)


@pytest.mark.parametrize("make", [spam_message, malware_message])
def test_what_is_to_be_held_is_refused_while_the_sender_waits(switched: Switched, engines, make):
    message = engines.dns.sign(make(), "pass.example")
    reply = send(switched.postfix.port, message)
    assert reply.startswith("554 5.7.1 "), reply
    assert switched.sink.empty


def test_the_envelope_comes_through_the_proxy(switched: Switched, plain):
    recipients = ("bob@company.example", "ann@company.example")
    assert send(switched.postfix.port, plain, *recipients).startswith("250")
    (arrived,) = switched.sink.take()
    result = switched.seal.read(arrived.content)
    assert result is not None
    ggrid = str(result.ggrid)
    known = switched.house.client().explained(ggrid)
    border = envelope(envelopeRecipients=list(recipients))["borderMtaData"]
    assert (known["source"], known["envelope"]) == ("rspamdApi", border)


def test_what_exim_speaks_is_translated_by_the_proxy(switched: Switched, engines, plain):
    clean = ask_as_exim(switched.exim_port, plain, "bob@company.example", "ann@company.example")
    assert clean.startswith("RSPAMD/1.3 0 EX_OK"), clean
    assert "Metric: default; False; " in clean
    assert "Action: no action" in clean
    spam = ask_as_exim(switched.exim_port, engines.dns.sign(spam_message(), "pass.example"), "bob@company.example")
    assert "Metric: default; True; 15.00 / 15.00" in spam
    assert "Action: reject" in spam


def test_when_full_the_sender_hears_4xx(switched: Switched, plain, sluice: Sluice):
    sluice.shut()
    with submitting(switched.house, plain, 2, sluice) as calls:
        assert wait_until(lambda: in_processing(switched.house, 0) == 2)
        reply = send(switched.postfix.port, plain)
    assert [call.result().status for call in calls] == [200, 200]
    assert reply.startswith("451 "), reply
    assert send(switched.postfix.port, plain).startswith("250")
    switched.sink.take()
