"""A digest as a message: hostile subjects and senders do nothing in it, and only what may be released has a link."""

import re
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import Message
from html.parser import HTMLParser
from typing import Any
from uuid import UUID, uuid4

import pytest

from mailwarden.crypto.keyring import KeyRing
from mailwarden.model.outcome import Verdict
from mailwarden.quarantine.digest import Digest, HeldForRecipient
from mailwarden.quarantine.digest_links import DigestLinkSigner
from mailwarden.quarantine.digest_mail import DigestWriter
from mailwarden.quarantine.model import HeldMessage, State
from mailwarden.quarantine.settings import DigestSettings
from mailwarden.smtp.own_mail import UnwritableAddress

NOW = datetime(2026, 11, 15, 7, 0, tzinfo=UTC)
SEAL = DigestLinkSigner(KeyRing.of(b"k" * 64))
SETTINGS = DigestSettings("quarantine@company.example", "https://mail.example:9081/", max_messages=3)
WRITER = DigestWriter(SETTINGS, SEAL)
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"></a><script>alert(1)</script>',
    "x\r\nBcc: eve@evil.example\r\n\r\nbody",
    "click https://evil.example/login or www.evil.example",
    "\u202eevil\u2066 \x00\x1b[2J",
    "=?utf-8?q?=0D=0ABcc:_eve@evil.example?=",
    "&lt;b&gt;{{ 7*7 }}",
    "A" * 100_000,
)


def held(**changes: Any) -> HeldMessage:
    given: dict[str, Any] = {
        "uid": uuid4(),
        "tenant": UUID(int=1),
        "ggrid": uuid4(),
        "vault": uuid4(),
        "address": b"a" * 32,
        "size": 100,
        "sender": "eve@evil.example",
        "from_address": "eve@evil.example",
        "from_name": "Eve",
        "subject": "Cheap",
        "verdict": Verdict.SPAM,
        "received": NOW - timedelta(hours=3),
        "expires": NOW + timedelta(days=30),
        "missing": False,
        "recipients": (),
        "whole": True,
        "reason": "asks for gift cards",
    }
    return HeldMessage(**{**given, **changes})


def digest(*messages: HeldMessage, recipient: str = "ann@company.example", more: int = 0) -> Digest:
    listed = [HeldForRecipient(each, 1, recipient, State.HELD) for each in messages]
    return Digest(UUID(int=1), recipient, listed, [each.uid for each in messages] + [uuid4() for _ in range(more)])


def written(*messages: HeldMessage, **changes: Any) -> tuple[Message, str, str]:
    """Return the message as a program reads it, with its two texts."""
    read = message_from_bytes(WRITER.write(digest(*messages, **changes), NOW))
    plain, html = (part.get_payload(decode=True) for part in read.get_payload())  # type: ignore[union-attr]
    assert isinstance(plain, bytes)
    assert isinstance(html, bytes)
    return read, plain.decode(), html.decode()


class Reader(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def test_a_digest_lists_held_messages_and_is_auto_generated():
    read, plain, html = written(held())
    assert (read["From"], read["To"]) == ("Mailwarden <quarantine@company.example>", "<ann@company.example>")
    assert read["Subject"] == "Held for you: 1 message"
    assert (read["Auto-Submitted"], read["MIME-Version"]) == ("auto-generated", "1.0")
    assert read.get_content_type() == "multipart/alternative"
    for text in ("Eve", "eve@evil[.]example", "Cheap", "2026-11-15 04:00", "spam", "asks for gift cards", "2026-11-22"):
        assert text in plain
        assert text in html


def test_a_link_leads_to_the_message_and_its_recipient():
    message = held()
    _, plain, html = written(message)
    (address,) = Reader(html).links
    assert address in plain
    assert address.startswith("https://mail.example:9081/held/")
    link = SEAL.open(address.rpartition("/")[2], NOW)
    assert link is not None
    assert (link.message, link.number, link.expires) == (message.uid, 1, NOW + timedelta(days=7))


@pytest.mark.parametrize(
    "changes",
    [
        *({"verdict": each} for each in Verdict if each not in (Verdict.SPAM, Verdict.SUSPICIOUS)),
        {"whole": False},
        {"missing": True},
        {"address": None},
    ],
)
def test_only_spam_and_suspicious_messages_that_were_analyzed_whole_have_a_link(changes):
    _, plain, html = written(held(**changes))
    assert Reader(html).links == []
    assert "/held/" not in plain
    assert "ask your administrator" in plain
    assert "/held/" in written(held(verdict=Verdict.SUSPICIOUS))[1]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_a_message_is_inert_in_a_digest(text):
    usual = written(held())
    read, plain, html = written(held(subject=text, from_name=text, from_address=text, sender=text, reason=text))
    assert read.keys() == usual[0].keys()
    assert Reader(html).tags == Reader(usual[2]).tags, "no element of its own"
    assert len(Reader(html).links) == 1
    assert len(plain) < 2_000
    for shown in (plain, html):
        assert all(each.isprintable() or each == "\n" for each in shown)
        assert re.findall(r"https?://[^/]*", shown) == ["https://mail.example:9081"]
        assert "www.evil" not in shown


def test_every_line_is_short_and_ascii():
    raw = WRITER.write(digest(held(subject="ü" * 500)), NOW)
    assert raw.isascii()
    assert max(map(len, raw.split(b"\r\n"))) <= 100
    assert b"\n" not in raw.replace(b"\r\n", b"")


def test_unlisted_messages_are_counted():
    read, plain, _ = written(held(), more=41)
    assert read["Subject"] == "Held for you: 42 messages"
    assert "41 older messages are held for you as well" in plain


@pytest.mark.parametrize("recipient", ["a\r\nBcc: eve@evil.example", "a>b@x", "a\u202eb@x.example", "x" * 400 + "@x"])
def test_an_address_that_could_end_its_field_is_not_written_to(recipient):
    with pytest.raises(UnwritableAddress):
        WRITER.write(digest(held(), recipient=recipient), NOW)


@pytest.mark.parametrize(
    "recipient",
    [
        '"ann+locked, see https://evil.example/login"@company.example',
        "ann+www.evil.example/login@company.example",
        "ann+evil.example?x@company.example",
        '"ann+' + "call us " * 30 + '"@company.example',
    ],
)
def test_text_in_the_recipient_address_is_inert(recipient):
    read, plain, html = written(held(), recipient=recipient)
    assert read["To"] == f"<{recipient}>"
    for shown in (plain, html, WRITER.preview(digest(held(), recipient=recipient), NOW)):
        assert "evil.example/" not in shown
        assert "evil.example?" not in shown
        assert shown.count("call us") < 20
    assert len(Reader(html).links) == 1


def test_a_preview_holds_no_link_that_works():
    shown = WRITER.preview(digest(held()), NOW)
    assert shown.startswith("Subject: Held for you: 1 message\n\nNew in quarantine for ann@company.example")
    assert "https://mail.example:9081/held/…" in shown
