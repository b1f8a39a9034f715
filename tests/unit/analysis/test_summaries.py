"""History keeps the addresses, parts and links of a message as people read them, within bounds."""

import base64
import time

import pytest

from mailwarden.analysis.message_values import summarize, with_links
from mailwarden.analysis.view import View
from mailwarden.message.limits import SHOWN
from mailwarden.message.parser import parse_message
from mailwarden.model.record import LinkSummary, MessageSummary

RAW = (
    b'From: "Doe, Ann" <ann@Sender.example>\r\nReply-To: other@reply.example\r\n'
    b"To: b@recipient.example, c@recipient.example\r\nSubject: hello\r\nMessage-ID: <1@sender.example>\r\n"
    b"Date: Mon, 1 Jan 2026 00:00:00 +0000\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: text/html\r\n\r\n"
    b'<a href="https://User@Shop.example:8443/x">x</a> http://b\xc3\xbccher.example/ <img src=http://cdn.example/i.png>\r\n'
)


def kept(raw: bytes) -> MessageSummary:
    message = parse_message(raw)
    return with_links(summarize(message), View(message))


def links_of(html: str, kind: str = "text/html; charset=utf-8") -> tuple[LinkSummary, ...]:
    return kept(f"From: a@b.example\r\nContent-Type: {kind}\r\n\r\n{html}\r\n".encode()).links


def test_hosts_of_links_and_of_loaded_content_are_kept():
    page = (
        '<a href="https://User@Shop.example:8443/x">x</a> http://b\xfccher.example/ <img src=http://cdn.example/i.png>'
    )
    summary = kept(f"Content-Type: text/html; charset=utf-8\r\n\r\n{page}\r\n".encode())
    assert summary.url_hosts == ("cdn.example", "shop.example", "xn--bcher-kva.example")
    many = " ".join(f"http://h{number}.example/" for number in range(5_000))
    assert len(kept(f"Subject: s\r\n\r\n{many}".encode()).url_hosts) == SHOWN.hosts


def test_a_link_is_its_text_its_target_and_its_host():
    found = links_of('<p><A class="x" HREF="https://Evil.example/a?b=1&amp;c=2"><b>www.</b>bank.example</A></p>')
    assert found == (LinkSummary("www.bank.example", "https://Evil.example/a?b=1&c=2", "evil.example"),)


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
    assert kept(raw).links == (LinkSummary("Click", "https://x.example/1", "x.example"),)


def test_many_links_to_one_host_hide_no_other_host():
    many = "".join(f'<a href="https://shop.example/{n}">{n}</a>' for n in range(300))
    found = links_of(many + '<a href="https://evil.example/">bank</a>')
    assert "evil.example" in {link.host for link in found}
    assert len(found) <= SHOWN.links


def test_everything_is_bounded_and_printable():
    long = "x" * 3_000
    found = links_of(f'<a href="http://h.example/{long}\u202e&#0;">{long}\u202e</a>')
    assert len(found[0].target) == SHOWN.link
    assert len(found[0].text) == SHOWN.fact
    assert all((link.target + link.text).isprintable() for link in found)
    hosts = "".join(f'<a href="http://h{n}.example/">{n}</a>' for n in range(400))
    assert len(links_of(hosts)) == SHOWN.links


def test_a_wide_charset_is_read():
    raw = b"Content-Type: text/html; charset=utf-16\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    raw += base64.b64encode('<a href="http://x.example/">go</a>'.encode("utf-16")) + b"\r\n"
    assert "x.example" in {link.host for link in kept(raw).links}


@pytest.mark.slow
def test_hostile_pages_cost_linear_time():
    for page in (
        "<a " * 300_000,
        '<a href="' * 100_000,
        "<a href=x>" * 100_000,
        "://" * 300_000,
        "<a " + '"' * 900_000,
    ):
        for kind in ("text/html", "text/plain"):
            started = time.process_time()
            kept(f"Content-Type: {kind}\r\n\r\n{page}\r\n".encode())
            assert time.process_time() - started < 3


def test_a_summary_names_people_and_parts():
    summary = summarize(parse_message(RAW))
    assert (summary.from_name, summary.from_address) == ("Doe, Ann", "ann@sender.example")
    assert summary.reply_to == "other@reply.example"
    assert summary.to == ("b@recipient.example", "c@recipient.example")
    assert (summary.subject, summary.message_id) == ("hello", "<1@sender.example>")
    assert [(part.path, part.media_type) for part in summary.parts] == [("0", "text/html")]
    assert summary.size == len(RAW)


def test_a_summary_is_bounded():
    subject = b"Subject: " + b"x" * 5_000 + b"\r\n\r\n"
    summary = summarize(parse_message(subject))
    assert len(summary.subject) == 998


def test_an_empty_message_has_a_summary():
    assert summarize(parse_message(b"")).from_address == ""
