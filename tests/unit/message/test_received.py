"""Reading the peer address and the hops from Received fields."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message.parser import parse_message
from mailwarden.message.received import MAX_HOPS, find_hops, read_received
from mailwarden.model.record import HopSummary
from tests.tables import every

PEER = "198.51.100.66"
CLAIMED = "203.0.113.25"
SIX = "2001:db8::66"
TAIL = "id 4X; Mon, 05 Jan 2026 10:00:00 +0000"
TLS = "(using TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256/256 bits) key-exchange X25519 server-signature RSA)"

# Each server's line, for the EHLO name and the verified name of a peer.
FORMATS = {
    "postfix": "from {ehlo} ({name} [{peer}]) by relay.acme.example (Postfix) with ESMTP " + TAIL,
    "postfix, no name": "from {ehlo} (unknown [{peer}]) by relay.acme.example (Postfix) with ESMTPS " + TAIL,
    "postfix, TLS": "from {ehlo} ({name} [{peer}]) " + TLS + " (No client certificate requested)"
    " by relay.acme.example (Postfix) with ESMTPS " + TAIL,
    "postfix, login": "from {ehlo} ({name} [{peer}]) (Authenticated sender: ada@acme.example)"
    " by relay.acme.example (Postfix) with ESMTPSA " + TAIL,
    "sendmail": "from {ehlo} ({name} [{peer}] (may be forged)) by relay.acme.example (8.17.1/8.17.1) with ESMTPS "
    + TAIL,
    "sendmail, no name": "from {ehlo} ([{peer}]) by relay.acme.example (8.17.1/8.17.1) with ESMTP " + TAIL,
    "opensmtpd": "from {ehlo} (<unknown> [{peer}]) by relay.acme.example (OpenSMTPD) with ESMTPS " + TAIL,
    "haraka": "from {ehlo} ({name} [{peer}]) by relay.acme.example (Haraka/3.0.3) with ESMTPS " + TAIL,
    "haraka, no name": "from {ehlo} (NXDOMAIN [{peer}]) by relay.acme.example (Haraka/3.0.3) with ESMTP " + TAIL,
    "exim": "from {name} ([{peer}] helo={ehlo}) by relay.acme.example with esmtps (TLS1.3) (Exim 4.96) " + TAIL,
    "exim, port": "from {name} ([{peer}]:4711 helo={ehlo}) by relay.acme.example with esmtp (Exim 4.96) " + TAIL,
    "exim, same name": "from {name} ([{peer}]) by relay.acme.example with esmtp (Exim 4.96) " + TAIL,
    "exim, no name": "from [{peer}] (helo={ehlo}) by relay.acme.example with esmtp (Exim 4.96) " + TAIL,
    "exim, no name, port": "from [{peer}]:4711 (helo={ehlo}) by relay.acme.example with esmtp (Exim 4.96) " + TAIL,
    "exchange": "from {ehlo} ({peer}) by EX01.acme.example (10.0.0.5) with Microsoft SMTP Server"
    " (version=TLS1_2, cipher=X) id 15.1.2507.6; Mon, 5 Jan 2026 10:00:00 +0000",
}
FAKES = (
    f"[{CLAIMED}]",
    f"x (y [{CLAIMED}])",
    f"x (unknown [{CLAIMED}]) by relay.acme.example (Postfix) with ESMTP",
    f"x\t(unknown\t[{CLAIMED}])\tby\trelay.acme.example\t(Postfix)\twith\tESMTP",
    f"x({CLAIMED})",
    f'"x (y [{CLAIMED}])"',
    f"=?us-ascii?q?x_=28unknown_[{CLAIMED}]=29_by_relay.acme.example_=28Postfix=29_with_ESMTP?=",
    f"x\x01(unknown\x01[{CLAIMED}])\x01by\x01r\x01(Postfix)\x01with\x01ESMTP",
    f"helo=[{CLAIMED}]",
    f"({CLAIMED}) by EX01.acme.example (10.0.0.5) with Microsoft SMTP Server",
    f"[{CLAIMED}]) by r with esmtp",
    CLAIMED,
    f"[IPv6:{SIX}]",
)


HOSTILE = st.lists(
    st.sampled_from(
        (f"[{CLAIMED}]", f"({CLAIMED})", "(", ")", "[", "]", " ", "\t", '"', "\\", "by", "from", "with ESMTP", "helo=",
         ";",
         "unknown", "=?us-ascii?q?", "?=", "_", "=28", "\x01", "\u2028", "(Postfix)", "x", ".", ":", "<", ">", ","),
    ),
    max_size=14,
).map("".join)  # fmt: skip


def line(server: str, **parts: str) -> str:
    given_parts = {"ehlo": "mail.north.example", "name": "mail.north.example", "peer": PEER, **parts}
    return FORMATS[server].format(**given_parts)


def peer_of(text: str) -> str:
    """Return the peer of a line as it comes through the parser of messages."""
    message = parse_message(b"Received: " + text.encode() + b"\r\nFrom: a@b.example\r\n\r\nx")
    return find_hops(message)[0].address


@pytest.mark.contract("8 Trusted relays")
@pytest.mark.parametrize("name", FORMATS)
def test_the_peer_is_read_in_each_servers_format(name):
    assert peer_of(line(name)) == PEER
    assert peer_of(line(name).replace(" by ", "\r\n\tby ")) == PEER
    assert peer_of(line(name).replace(" (", "\r\n\t(", 1)) == PEER


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "exchange"])
def test_an_address_of_version_6_is_read_with_and_without_prefix(name):
    assert peer_of(line(name, peer=f"IPv6:{SIX}")) == SIX
    assert peer_of(line(name, peer=SIX.upper())) == SIX


def test_a_mapped_address_is_that_of_version_4():
    assert peer_of(line("postfix", peer=f"IPv6:::ffff:{PEER}")) == PEER


@pytest.mark.contract("8 Trusted relays")
def test_the_helo_name_is_never_the_peer_address():
    def check(case):
        name, fake = case
        assert peer_of(line(name, ehlo=fake)) in (PEER, "")

    every(product(FORMATS, FAKES), check)


def test_a_verified_name_is_never_the_address():
    def check(case):
        name, fake = case
        assert peer_of(line(name, name=fake)) in (PEER, "")

    every(product(FORMATS, FAKES), check)


@given(st.sampled_from(sorted(FORMATS)), HOSTILE, st.sampled_from(("mail.north.example", "unknown", "x")))
def test_no_ehlo_name_becomes_the_address(name, ehlo, verified):
    # A server that writes a space as it came has ended the EHLO name there: the ones we read never write one.
    written = "".join(sign if sign not in " ()" else "?" for sign in ehlo) or "x"
    assert peer_of(line(name, ehlo=written, name=verified)) in (PEER, "")
    assert peer_of(line(name, ehlo=ehlo.replace(" ", ""), name=verified)) in (PEER, "")


@pytest.mark.parametrize(
    "text",
    [
        f"from unknown (HELO [{CLAIMED}]) ({PEER}) by relay.acme.example with SMTP; now",
        f"from unknown (HELO x) ({PEER}) by relay.acme.example with SMTP; now",
        f"from x (account y HELO [{CLAIMED}]) by relay.acme.example with ESMTP id 1; now",
        f"from x (EHLO [{CLAIMED}]) by relay.acme.example (Other) with ESMTP id 1; now",
        "by relay.acme.example (Postfix, from userid 0) id 4X; now",
        "from localhost (relay.acme.example [local]) by relay.acme.example (OpenSMTPD) with ESMTP id 1; now",
        f"from x (y [{PEER}])",
        f"from x (y [{PEER}]) (z [{CLAIMED}]) by relay.acme.example (Postfix) with ESMTP id 1; now",
        f"(from x [{PEER}]) by relay.acme.example (Postfix) with ESMTP id 1; now",
        "from x (y [999.1.1.1]) by relay.acme.example (Postfix) with ESMTP id 1; now",
        "",
    ],
)
def test_a_line_in_another_format_has_no_peer(text):
    assert read_received(text) is None


def test_a_long_line_of_half_comments_is_read_in_no_time():
    for piece in ("(using x", "(using x)", " (", "[1", "a" * 300, "(using (a) (b) "):
        assert read_received("from x (y [192.0.2.1])" + piece * 500) is None


def hops_of(*lines: str) -> tuple[HopSummary, ...]:
    head = "".join(f"Received: {line}\r\n" for line in lines)
    return find_hops(parse_message(f"{head}From: a@b.example\r\n\r\nhello\r\n".encode()))


def test_a_hop_has_its_from_and_by_hosts():
    found = hops_of(
        "from mail.sender.example (mail.sender.example [192.0.2.7])\r\n by mx.corp.example (Postfix) with ESMTPS"
        " id ABC;\r\n Mon, 02 Nov 2026 10:00:00 +0000",
        "by mail.sender.example with HTTP; Mon, 02 Nov 2026 09:59:58 +0000",
    )
    assert found == (
        HopSummary("mail.sender.example", "mx.corp.example", "192.0.2.7", "Mon, 02 Nov 2026 10:00:00 +0000"),
        HopSummary("", "mail.sender.example", "", "Mon, 02 Nov 2026 09:59:58 +0000"),
    )


def test_hops_are_bounded():
    assert len(hops_of(*["from a.example by b.example; now"] * 100)) == MAX_HOPS
    assert hops_of("\x01 nothing that anyone can read")[0] == HopSummary()
