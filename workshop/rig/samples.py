"""Samples: a plain message, a made-up lure, the antivirus test file and the spam test text."""

from email.utils import formatdate

# Assembled here, so that no scanner detects this file.
EICAR = b"X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + b"EICAR-STANDARD-" + b"ANTIVIRUS-TEST-FILE!$H+H*"
GTUBE = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*" + b"GTUBE-STANDARD-ANTI-UBE-TEST-" + b"EMAIL*C.34X"

_PLAIN_TEXT = b"Dear Bob,\r\n\r\nthe minutes of our meeting are on the shared drive.\r\n\r\nAlice\r\n"


def plain_message(sender: str = "alice@pass.example", subject: str = "Minutes of the meeting") -> bytes:
    return _head(sender, subject) + b"Content-Type: text/plain; charset=utf-8\r\n\r\n" + _PLAIN_TEXT


def spam_message(sender: str = "alice@pass.example") -> bytes:
    """Return a message with the text that every spam filter detects."""
    return _head(sender, "A test of the spam filter") + b"Content-Type: text/plain\r\n\r\n" + GTUBE + b"\r\n"


def phishing_message() -> bytes:
    """Return a message that asks for a password on a page that only looks like Microsoft's."""
    page = (
        "<p>Dear user,</p><p>Your mailbox password expires today. Confirm it within 24 hours, or your account will be "
        'suspended.</p><p><a href="https://login.mailbox-renewal.example/owa?u=bob@company.example">'
        "https://login.microsoftonline.com</a></p><p>Microsoft 365 Team</p>"
    )
    head = _head("service@mailbox-renewal.example", "Your password expires today", name="Microsoft 365")
    return head + b"Content-Type: text/html; charset=utf-8\r\n\r\n" + page.encode("ascii") + b"\r\n"


def malware_message(sender: str = "alice@pass.example") -> bytes:
    """Return a message with the file that every antivirus detects as its attachment."""
    lines = [
        b"Content-Type: multipart/mixed; boundary=rig",
        b"",
        b"--rig",
        b"Content-Type: text/plain; charset=utf-8",
        b"",
        _PLAIN_TEXT,
        b"--rig",
        b'Content-Type: application/octet-stream; name="minutes.com"',
        b'Content-Disposition: attachment; filename="minutes.com"',
        b"",
        EICAR,
        b"--rig--",
        b"",
    ]
    return _head(sender, "Minutes of the meeting") + b"\r\n".join(lines)


def _head(sender: str, subject: str, name: str = "Alice") -> bytes:
    return (
        f"From: {name} <{sender}>\r\nTo: Bob <bob@company.example>\r\nSubject: {subject}\r\n"
        f"Date: {formatdate()}\r\nMessage-ID: <minutes@{sender.partition('@')[2]}>\r\nMIME-Version: 1.0\r\n"
    ).encode("ascii")
