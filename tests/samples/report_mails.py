"""Mails to a report mailbox in every format, with the message that they report."""

import base64

REPORTER = "ann@acme.example"
MAILBOX = "phishing@acme.example"
ORIGINAL = (
    b"From: Parcel Service <service@parcel.example>\r\nTo: ann@acme.example\r\nSubject: Your parcel waits\r\n"
    b"Message-ID: <parcel-1@parcel.example>\r\nDate: Mon, 16 Nov 2026 10:00:00 +0000\r\n\r\n"
    b"Please confirm the delivery address of your parcel at http://parcel-fee.example/pay before tomorrow evening.\r\n"
)


def head(subject: str, *more: str, sender: str = REPORTER, content_type: str = "text/plain; charset=utf-8") -> bytes:
    fields = (
        f"From: Ann <{sender}>",
        f"To: {MAILBOX}",
        f"Subject: {subject}",
        "Message-ID: <report-1@acme.example>",
        "Date: Tue, 17 Nov 2026 09:00:00 +0000",
        "MIME-Version: 1.0",
        *more,
        f"Content-Type: {content_type}",
    )
    return ("\r\n".join(fields) + "\r\n\r\n").encode()


def mixed(subject: str, *parts: bytes, sender: str = REPORTER, kind: str = "multipart/mixed") -> bytes:
    body = b"".join(b"--edge\r\n" + part + b"\r\n" for part in parts)
    return head(subject, sender=sender, content_type=f'{kind}; boundary="edge"') + body + b"--edge--\r\n"


NOTE = b"Content-Type: text/plain\r\n\r\nThis looks wrong.\r\n"


def attached(original: bytes = ORIGINAL, sender: str = REPORTER) -> bytes:
    return mixed("Fwd: Your parcel waits", NOTE, b"Content-Type: message/rfc822\r\n\r\n" + original, sender=sender)


def delivered_by_exchange(original: bytes) -> bytes:
    """Return the message with the header fields that Exchange Online adds on delivery."""
    fields = (
        b"X-Ms-Exchange-Organization-Network-Message-Id: 49871234-6dc6-43e8-abcd-08d797f20abe\r\n"
        b"X-Ms-Exchange-Crosstenant-Id: 0f2d7c2a-1111-4222-8333-944445555666\r\n"
        b"X-Microsoft-Antispam-Message-Info: AbCdEf0123456789==\r\n"
    )
    head, edge, body = original.partition(b"\r\n\r\n")
    return head + b"\r\n" + fields.removesuffix(b"\r\n") + edge + body


def microsoft(original: bytes = ORIGINAL, action: int = 3, sender: str = REPORTER) -> bytes:
    facts = "49871234-6dc6-43e8-abcd-08d797f20abe|192.0.2.7|service@parcel.example"
    part = b'Content-Type: message/rfc822; name="Your parcel waits.eml"\r\nContent-Disposition: attachment\r\n\r\n'
    return mixed(f"{action}|{facts}|(Your parcel waits)", NOTE, part + original, sender=sender)


def google(original: bytes = ORIGINAL, sender: str = REPORTER) -> bytes:
    part = (
        b'Content-Type: application/octet-stream; name="Your parcel waits.eml"\r\n'
        b'Content-Disposition: attachment; filename="Your parcel waits.eml"\r\n'
        b"Content-Transfer-Encoding: base64\r\n\r\n"
    )
    return mixed("reported", NOTE, part + base64.encodebytes(original).replace(b"\n", b"\r\n"), sender=sender)


def arf(original: bytes = ORIGINAL, feedback: str = "fraud", *, whole: bool = True, sender: str = REPORTER) -> bytes:
    facts = f"Content-Type: message/feedback-report\r\n\r\nFeedback-Type: {feedback}\r\nVersion: 1\r\n".encode()
    kind = b"message/rfc822" if whole else b"text/rfc822-headers"
    shown = original if whole else original.partition(b"\r\n\r\n")[0] + b"\r\n"
    parts = (NOTE, facts, b"Content-Type: " + kind + b"\r\n\r\n" + shown)
    return mixed("FW: complaint", *parts, sender=sender, kind="multipart/report; report-type=feedback-report")


def inline(labels: tuple[str, str] = ("From", "Subject"), *, identifier: bool = True, sender: str = REPORTER) -> bytes:
    sender_label, subject_label = labels
    lines = [
        "Is this real?",
        "",
        "---------- Forwarded message ---------",
        f"{sender_label}: Parcel Service <service@parcel.example>",
        "Date: Mon, 16 Nov 2026 at 10:00",
        f"{subject_label}: Your parcel waits",
        "To: <ann@acme.example>",
        *(["Message-ID: <parcel-1@parcel.example>"] if identifier else []),
        "",
        "Please confirm the delivery address of your parcel.",
    ]
    return head("Fwd: Your parcel waits", sender=sender) + "\r\n".join(lines).encode() + b"\r\n"
