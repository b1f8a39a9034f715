"""Sends a message to guard by SMTP as Postfix does before its queue."""

import re
import smtplib
from collections.abc import Sequence

from workshop.rig.caller import HOST

_LINE_END = re.compile(rb"\r\n|\r|\n")


def send_as_postfix(
    port: int,
    message: bytes,
    sender: str,
    recipients: Sequence[str],
    *,
    address: str | None,
    helo: str | None,
    patience: float,
) -> str:
    """Return the code and the text of the reply to the message, or of the first rejected command."""
    with smtplib.SMTP(HOST, port, timeout=patience) as session:
        session.ehlo()
        session.docmd("XFORWARD", f"ADDR={address or '[UNAVAILABLE]'} HELO={helo or '[UNAVAILABLE]'}")
        replies = [session.mail(sender, ("BODY=8BITMIME",)), *map(session.rcpt, recipients)]
        code, text = next((reply for reply in replies if reply[0] >= 300), None) or _data(session, message)
    return f"{code} {text.decode('latin-1')}"


def _data(session: smtplib.SMTP, message: bytes) -> tuple[int, bytes]:
    try:
        return session.data(message)
    except smtplib.SMTPResponseException as error:
        return error.smtp_code, error.smtp_error if isinstance(error.smtp_error, bytes) else error.smtp_error.encode()


def as_smtp_carries(raw: bytes) -> bytes:
    """Return the message with whole lines and without NUL."""
    message = _LINE_END.sub(b"\r\n", raw).replace(b"\0", b"")
    return message if message.endswith(b"\r\n") else message + b"\r\n"
