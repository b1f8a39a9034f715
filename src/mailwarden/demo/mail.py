"""Writes a planned message as a receiving server has it, and the report that a person makes of a message."""

from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from mailwarden.demo.attachments import content_of
from mailwarden.demo.stories import Person, Planned


def write(message: Planned) -> bytes:
    """Return the bytes of a message, with one Received field of the receiving server."""
    mail = _head(message.sender, ", ".join(message.recipients), message.subject)
    date = format_datetime(message.moment)
    host = message.recipients[0].rpartition("@")[2]
    mail["Date"] = date
    mail["Message-ID"] = message.message_id
    if message.references:
        mail["In-Reply-To"] = message.references[-1]
        mail["References"] = " ".join(message.references[-10:])
    if message.reply_to:
        mail["Reply-To"] = message.reply_to
    for name, value in message.headers.items():
        mail[name] = value
    mail.set_content(message.text)
    if message.html:
        mail.add_alternative(message.html, subtype="html")
    for attachment in message.attachments:
        media_type, content = content_of(attachment)
        kind, _, detail = media_type.partition("/")
        subtype, _, parameters = detail.partition(";")
        mail.add_attachment(
            content,
            maintype="application" if kind == "message" else kind,
            subtype="octet-stream" if kind == "message" else subtype,
            filename=attachment.name,
            params=dict(field.strip().split("=", 1) for field in parameters.split(";") if "=" in field) or None,
        )
    for place, part in enumerate(mail.walk()):
        if part.is_multipart():
            part.set_boundary(f"=_{message.number}_{place}")  # the same each time
    received = (
        f"Return-Path: <{message.envelope}>\r\n"
        f"Received: from {message.helo} ({message.helo} [{message.ip}])\r\n"
        f"\tby mx.{host} with ESMTPS id 4D{message.number:05d}\r\n\tfor <{message.recipients[0]}>; {date}\r\n"
    )
    return received.encode("ascii", "replace") + mail.as_bytes()


def report(reporter: Person, address: str, subject: str, original: bytes, date: str) -> bytes:
    """Return a mail to the report address that has the original attached."""
    mail = _head(f'"{reporter.display}" <{reporter.address}>', address, f"FW: {subject}")
    mail["Date"] = date
    mail.set_content("Bitte prüfen.\n" if reporter.language == "de" else "Please have a look.\n")
    mail.add_attachment(original, maintype="application", subtype="octet-stream", filename="message.eml")
    return mail.as_bytes()


def _head(sender: str, to: str, subject: str) -> EmailMessage:
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = to
    mail["Subject"] = subject
    return mail
