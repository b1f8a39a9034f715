"""Writes the mails that guard itself sends: digests, weekly reports, and answers to reporters.

The header fields are written here and not by the email package, whose policies fail on hostile names.

Security: the recipient's address stands in a header field, and is rejected if it could end it. Texts stand in no field,
and are encoded. `Auto-Submitted` and the null envelope sender keep other programs from answering (RFC 3834, sections
3.1.7 and 3.3).
"""

import base64
import secrets
from datetime import datetime
from email.utils import format_datetime

MAX_ADDRESS = 320


class UnwritableAddress(Exception):
    """The recipient's address is not safe in a header field."""


def checked_address(address: str, ends: str = "<> ,;") -> str:
    """Return the address, or raise UnwritableAddress if it could end a header field."""
    if len(address) > MAX_ADDRESS or not address.isprintable() or any(character in address for character in ends):
        raise UnwritableAddress
    return address


def compose(
    sender: str,
    recipient: str,
    subject: str,
    now: datetime,
    *,
    plain: str,
    html: str = "",
    automatic: str = "auto-generated",
) -> bytes:
    """Return the mail; it is ASCII unless the checked address of the recipient is not."""
    content = _part("plain", plain)
    if html:
        boundary = secrets.token_hex(16)
        parts = "".join(f"--{boundary}\r\n{part}\r\n" for part in (content, _part("html", html)))
        content = f'Content-Type: multipart/alternative; boundary="{boundary}"\r\n\r\n{parts}--{boundary}--'
    lines = (
        f"From: Mailwarden <{sender}>",
        f"To: <{recipient}>",
        f"Subject: {subject}",
        f"Date: {format_datetime(now)}",
        f"Message-ID: <{secrets.token_hex(16)}@{sender.rpartition('@')[2]}>",
        f"Auto-Submitted: {automatic}",
        "X-Auto-Response-Suppress: All",
        "MIME-Version: 1.0",
        f"{content}\r\n",
    )
    return "\r\n".join(lines).encode()


def _part(kind: str, text: str) -> str:
    encoded = base64.encodebytes(text.encode("utf-8", "replace")).decode("ascii").replace("\n", "\r\n").rstrip()
    return f"Content-Type: text/{kind}; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n{encoded}"
