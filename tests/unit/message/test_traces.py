"""Hops are kept as people read them, within bounds."""

import msgspec

from mailwarden.message.parser import parse_message
from mailwarden.message.traces import MAX_HOPS, find_hops
from mailwarden.model.summary import HopSummary, MessageSummary


def hops_of(*lines: str) -> tuple[HopSummary, ...]:
    head = "".join(f"Received: {line}\r\n" for line in lines)
    return find_hops(parse_message(f"{head}From: a@b.example\r\n\r\nhello\r\n".encode()))


def test_a_hop_names_who_gave_and_who_took():
    found = hops_of(
        "from mail.sender.example (mail.sender.example [192.0.2.7])\r\n by mx.corp.example (Postfix) with ESMTPS"
        " id ABC;\r\n Mon, 02 Nov 2026 10:00:00 +0000",
        "by mail.sender.example with HTTP; Mon, 02 Nov 2026 09:59:58 +0000",
    )
    assert found == (
        HopSummary("mail.sender.example", "mx.corp.example", "192.0.2.7", "Mon, 02 Nov 2026 10:00:00 +0000"),
        HopSummary("", "mail.sender.example", "", "Mon, 02 Nov 2026 09:59:58 +0000"),
    )


def test_an_address_of_version_6_is_read():
    assert hops_of("from x ([IPv6:2001:db8::1]) by y (Postfix) with ESMTP id 1; now")[0].address == "2001:db8::1"


def test_hops_are_bounded():
    assert len(hops_of(*["from a.example by b.example; now"] * 100)) == MAX_HOPS
    assert hops_of("\x01 nothing that anyone can read")[0] == HopSummary()


def test_a_record_from_before_links_and_hops_still_decodes():
    assert msgspec.json.decode(b'{"size": 1, "sha256": ""}', type=MessageSummary).links == ()
