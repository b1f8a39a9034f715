"""The servers of the demo on loopback: a name server that knows one name, and a sink for mail."""

import asyncio
import smtplib
import socket

import dns.message
import dns.rcode
import pytest

from mailwarden.demo.engines import checks_of
from mailwarden.demo.loopback import HOST, PROBE, answer_to, loopback_servers
from mailwarden.demo.stories import Authentication


def test_the_name_server_knows_its_own_name_alone() -> None:
    known = dns.message.from_wire(answer_to(dns.message.make_query(PROBE, "A").to_wire()))
    assert [str(record) for answer in known.answer for record in answer] == [HOST]
    other = dns.message.from_wire(answer_to(dns.message.make_query("bank.example", "TXT").to_wire()))
    assert other.rcode() == dns.rcode.NXDOMAIN


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def send(port: int) -> dict[str, tuple[int, bytes]]:
    with smtplib.SMTP(HOST, port, timeout=30) as client:
        return client.sendmail("a@a.example", ["b@b.example", "c@c.example"], "Subject: x\r\n\r\n.\r\nText\r\n")


async def test_the_sink_takes_every_message() -> None:
    port = free_port()
    async with loopback_servers(port, free_port()):
        assert await asyncio.to_thread(send, port) == {}


@pytest.mark.parametrize(
    ("authentication", "results"),
    [
        ("pass", ("pass", "pass", "pass")),
        ("spf-pass", ("pass", "none", "pass")),
        ("dkim-pass", ("none", "pass", "pass")),
        ("fail", ("fail", "none", "reject")),
        ("none", ("none", "none", "none")),
    ],
)
def test_the_story_tells_the_sender_checks(authentication: Authentication, results: tuple[str, str, str]) -> None:
    checks = checks_of(authentication, "tools.example", "tools.example")
    assert (checks.spf, checks.dkim[0][0], checks.dmarc) == results
    assert checks.spf_checked
