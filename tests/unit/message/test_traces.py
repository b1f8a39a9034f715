"""Links and hops are kept as people read them, within bounds."""

import base64
import time

import msgspec

from mailwarden.message.parser import parse_message
from mailwarden.message.traces import MAX_HOPS, MAX_LINKS, MAX_TARGET, MAX_TEXT, find_hops, find_links
from mailwarden.model.summary import HopSummary, LinkSummary, MessageSummary


def links_of(html: str, kind: str = "text/html; charset=utf-8") -> tuple[LinkSummary, ...]:
    return find_links(parse_message(f"From: a@b.example\r\nContent-Type: {kind}\r\n\r\n{html}\r\n".encode()))


def hops_of(*lines: str) -> tuple[HopSummary, ...]:
    head = "".join(f"Received: {line}\r\n" for line in lines)
    return find_hops(parse_message(f"{head}From: a@b.example\r\n\r\nhello\r\n".encode()))


def test_a_link_is_its_text_its_target_and_its_host():
    found = links_of('<p><A class="x" HREF="https://Evil.example/a?b=1&amp;c=2"><b>www.</b>bank.example</A></p>')
    assert found == (LinkSummary("www. bank.example", "https://Evil.example/a?b=1&c=2", "evil.example"),)


def test_a_greater_sign_in_an_attribute_does_not_end_the_tag():
    assert links_of('<a title="a > b" href="http://x.example/">go</a>') == (
        LinkSummary("go", "http://x.example/", "x.example"),
    )


def test_quotes_may_be_missing_or_single():
    targets = [link.target for link in links_of("<a href=http://x.example/1>1</a><a href='http://y.example/2'>2</a>")]
    assert targets == ["http://x.example/1", "http://y.example/2"]


def test_the_href_of_another_tag_is_not_the_link_s():
    assert links_of('<a name="top"></a><link href="http://x.example/">') == ()


def test_a_plain_text_has_links_too():
    found = links_of("Look at https://x.example/path, or at http://y.example.", "text/plain")
    assert found == (
        LinkSummary("https://x.example/path", "https://x.example/path", "x.example"),
        LinkSummary("http://y.example", "http://y.example", "y.example"),
    )


def test_the_plain_copy_of_a_page_adds_nothing():
    raw = (
        b"Content-Type: multipart/alternative; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\n"
        b"Click https://x.example/1\r\n--x\r\nContent-Type: text/html\r\n\r\n"
        b'<a href="https://x.example/1">Click</a>\r\n--x--\r\n'
    )
    assert find_links(parse_message(raw)) == (LinkSummary("Click", "https://x.example/1", "x.example"),)


def test_many_links_to_one_host_hide_no_other_host():
    many = "".join(f'<a href="https://shop.example/{n}">{n}</a>' for n in range(300))
    found = links_of(many + '<a href="https://evil.example/">bank</a>')
    assert "evil.example" in {link.host for link in found}
    assert len(found) <= MAX_LINKS


def test_everything_is_bounded_and_printable():
    long = "x" * 3_000
    found = links_of(f'<a href="http://h.example/{long}\u202e&#0;">{long}\u202e</a>')
    assert len(found[0].target) == MAX_TARGET
    assert len(found[0].text) == MAX_TEXT
    assert all((link.target + link.text).isprintable() for link in found)
    hosts = "".join(f'<a href="http://h{n}.example/">{n}</a>' for n in range(400))
    assert len(links_of(hosts)) == MAX_LINKS


def test_a_wide_charset_is_read():
    raw = b"Content-Type: text/html; charset=utf-16\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    raw += base64.b64encode('<a href="http://x.example/">go</a>'.encode("utf-16")) + b"\r\n"
    assert "x.example" in {link.host for link in find_links(parse_message(raw))}


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


def test_hostile_pages_cost_linear_time():
    for page in (
        "<a " * 300_000,
        '<a href="' * 100_000,
        "<a href=x>" * 100_000,
        "://" * 300_000,
        "<a " + '"' * 900_000,
    ):
        for kind in ("text/html", "text/plain"):
            message = parse_message(f"Content-Type: {kind}\r\n\r\n{page}\r\n".encode())
            started = time.process_time()
            find_links(message)
            assert time.process_time() - started < 0.5
