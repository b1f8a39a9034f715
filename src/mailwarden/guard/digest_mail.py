"""Writes a digest as a message: in plain text and in HTML, with a link for what the recipient may have released.

Its header fields are written here and not by the email package, whose policies have been surprised by hostile names.

Security: shows hostile senders and subjects. They come as inert text from `DigestLine`, are escaped in HTML and are in
no header field. The recipient's own address is in one, and is rejected if it could end the field. The text shows an
unusual address as inert text: senders choose the part after `+` and quoted local parts.
"""

import base64
import re
import secrets
import textwrap
from collections.abc import Sequence
from datetime import datetime, timedelta
from email.utils import format_datetime
from html import escape

from msgspec import Struct

from mailwarden.guard.quarantine_config import DigestSettings
from mailwarden.quarantine.digest import (
    LINK_PATH,
    MAX_RECIPIENT,
    MAX_SENDER,
    Digest,
    DigestLine,
    DigestLink,
    DigestLinkSigner,
    inert_text,
)

_PLAIN = re.compile(r"[\w.+=-]{1,64}@[\w.-]+")
_CELL = "padding:8px 12px 8px 0;border-top:1px solid #ccc;vertical-align:top;text-align:left"
WITH_LINK = (
    "A link shows you one message and a button by which it is delivered to you. Opening the link alone delivers "
    "nothing. Have nothing delivered that you did not expect."
)
WITHOUT_LINK = (
    "Messages without a link are dangerous or could not be inspected. If you expect one, ask your administrator."
)


class Line(Struct, frozen=True):
    shown: DigestLine
    address: str  # of the page that releases it; empty where only an administrator may


class Unwritable(Exception):
    """The recipient's address cannot stand in a header field, or should not."""


class DigestWriter:
    def __init__(self, settings: DigestSettings, seal: DigestLinkSigner) -> None:
        self._settings = settings
        self._seal = seal

    def write(self, digest: Digest, now: datetime) -> bytes:
        """Return the message; only ASCII, but for a recipient's address that is not."""
        lines, until = self._lines(digest, now), now + timedelta(days=self._settings.link_days)
        address = _written(digest.recipient)
        rest = len(digest.uids) - len(lines)
        boundary = secrets.token_hex(16)
        head = (
            f"From: Mailwarden <{self._settings.sender}>",
            f"To: <{address}>",
            f"Subject: {subject_of(digest)}",
            f"Date: {format_datetime(now)}",
            f"Message-ID: <{secrets.token_hex(16)}@{self._settings.sender.rpartition('@')[2]}>",
            "Auto-Submitted: auto-generated",
            "X-Auto-Response-Suppress: All",
            "MIME-Version: 1.0",
            f'Content-Type: multipart/alternative; boundary="{boundary}"',
        )
        parts = (("plain", text_of(lines, rest, address, until)), ("html", html_of(lines, rest, address, until)))
        body = "".join(
            f"--{boundary}\r\nContent-Type: text/{kind}; charset=utf-8\r\n"
            f"Content-Transfer-Encoding: base64\r\n\r\n{_encoded(text)}\r\n"
            for kind, text in parts
        )
        return ("\r\n".join(head) + f"\r\n\r\n{body}--{boundary}--\r\n").encode()

    def preview(self, digest: Digest, now: datetime) -> str:
        """Return subject and plain text, with links that lead nowhere: whoever looks on is not the recipient."""
        lines = [Line(each.shown, each.address and f"{self._page}…") for each in self._lines(digest, now)]
        rest, until = len(digest.uids) - len(lines), now + timedelta(days=self._settings.link_days)
        text = text_of(lines, rest, _written(digest.recipient), until)
        return f"Subject: {subject_of(digest)}\n\n{text}"

    @property
    def _page(self) -> str:
        return f"{self._settings.link.rstrip('/')}{LINK_PATH}/"

    def _lines(self, digest: Digest, now: datetime) -> list[Line]:
        lines = []
        for each in digest.listed:
            address = ""
            if each.message.is_open_to_recipients:
                link = DigestLink(each.message.uid, each.number, now + timedelta(days=self._settings.link_days))
                address = self._page + self._seal.token(link)
            lines.append(Line(DigestLine.of(each.message), address))
        return lines


def subject_of(digest: Digest) -> str:
    count = len(digest.uids)
    return f"Held for you: {count} {'message' if count == 1 else 'messages'}"


def text_of(lines: Sequence[Line], rest: int, recipient: str, until: datetime) -> str:
    """Return the digest as plain text."""
    blocks = [f"New in quarantine for {_named(recipient)}:"]
    for each in lines:
        shown = each.shown
        block = f"{shown.received:%Y-%m-%d %H:%M} UTC, {shown.verdict}\n  From:    {shown.sender}\n"
        block += f"  Subject: {shown.subject}"
        blocks.append(block + (f"\n  Look:    {each.address}" if each.address else ""))
    return "\n\n".join([*blocks, *(textwrap.fill(each, 76) for each in _sentences(lines, rest, until))]) + "\n"


def html_of(lines: Sequence[Line], rest: int, recipient: str, until: datetime) -> str:
    """Return the digest as HTML; every value is escaped."""
    rows = []
    for each in lines:
        shown = each.shown
        link = f'<br><a href="{escape(each.address)}">Look at it</a>' if each.address else ""
        rows.append(
            f'<tr><td style="{_CELL};white-space:nowrap">{shown.received:%Y-%m-%d %H:%M}<br>'
            f"{escape(shown.verdict)}</td>"
            f'<td style="{_CELL}"><b>{escape(shown.subject)}</b><br>{escape(shown.sender)}{link}</td></tr>\n'
        )
    below = "".join(f"<p>{escape(each)}</p>\n" for each in _sentences(lines, rest, until))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Held for you</title></head>\n'
        '<body style="font-family:sans-serif;line-height:1.4">\n'
        f"<p>New in quarantine for {escape(_named(recipient))}; times are UTC:</p>\n"
        '<table style="border-collapse:collapse">\n'
        f"{''.join(rows)}</table>\n{below}</body></html>\n"
    )


def _sentences(lines: Sequence[Line], rest: int, until: datetime) -> list[str]:
    """Return what is said below the list."""
    said = []
    if rest:
        more = "1 older message is" if rest == 1 else f"{rest:,} older messages are"
        said.append(f"{more} held for you as well and not listed here: ask your administrator.")
    if any(each.address for each in lines):
        said.append(f"{WITH_LINK} Links are valid until {until:%Y-%m-%d}. Anyone with this message can use them.")
    if not all(each.address for each in lines):
        said.append(WITHOUT_LINK)
    return said


def _written(address: str) -> str:
    if len(address) > MAX_RECIPIENT or not address.isprintable() or any(sign in address for sign in "<>"):
        raise Unwritable
    return address


def _named(address: str) -> str:
    """Return the recipient as it is shown: words and links in an address are the sender's, and do nothing."""
    return address if _PLAIN.fullmatch(address) else inert_text(address, MAX_SENDER)


def _encoded(text: str) -> str:
    return base64.encodebytes(text.encode("utf-8", "replace")).decode("ascii").replace("\n", "\r\n").rstrip()
