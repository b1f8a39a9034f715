"""The answer to a reporter when the case closes: one short mail in plain text.

Security: the subject of the reported message is hostile text. It is made inert and stands in no header field. The
reporter's address stands in one, and is rejected if it could end it. `Auto-Submitted` and the null envelope sender keep
other programs from answering (RFC 3834, sections 3.1.7 and 3.3).
"""

import base64
import secrets
import textwrap
from datetime import datetime
from email.utils import format_datetime

from mailwarden.quarantine.digest import inert_text
from mailwarden.user_reports.cases.model import Answer, CaseOutcome

MAX_ADDRESS = 320
MAX_SUBJECT = 120
_SENTENCES = {
    CaseOutcome.MALICIOUS: (
        "The message is malicious. Delete it, and open neither its links nor its files. If you entered a password or "
        "opened a file, call your administrator now. Your report helps to stop similar messages."
    ),
    CaseOutcome.SPAM: "The message is spam: unwanted, but not an attack. You can delete it.",
    CaseOutcome.HARMLESS: "The message is harmless. You can use it as usual. It was right to ask.",
    CaseOutcome.UNDECIDED: (
        "We could not find out whether the message is harmful. Do not use its links and files. If you expected it, ask "
        "the sender by telephone."
    ),
}


class UnwritableReporter(Exception):
    """The reporter's address is not safe in a header field."""


def write_answer(answer: Answer, *, sender: str, now: datetime) -> bytes:
    """Return the message; it is ASCII unless the reporter's address is not."""
    head = (
        f"From: Mailwarden <{sender}>",
        f"To: <{_checked(answer.reporter)}>",
        "Subject: Your report was examined",
        f"Date: {format_datetime(now)}",
        f"Message-ID: <{secrets.token_hex(16)}@{sender.rpartition('@')[2]}>",
        "Auto-Submitted: auto-replied",
        "X-Auto-Response-Suppress: All",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Transfer-Encoding: base64",
    )
    body = base64.encodebytes(answer_text(answer).encode("utf-8", "replace")).decode("ascii").replace("\n", "\r\n")
    return ("\r\n".join(head) + "\r\n\r\n" + body).encode()


def answer_text(answer: Answer) -> str:
    subject = inert_text(answer.subject, MAX_SUBJECT) or "(no subject)"
    blocks = (
        f"Thank you for your report of this message:\n\n    {subject}",
        textwrap.fill(_SENTENCES[answer.outcome], 76),
    )
    return "\n\n".join((*blocks, "Mailwarden sent this answer. Replies to it are not read.")) + "\n"


def _checked(address: str) -> str:
    if len(address) > MAX_ADDRESS or not address.isprintable() or any(each in address for each in "<> ,;"):
        raise UnwritableReporter
    return address
