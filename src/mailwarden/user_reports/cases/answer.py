"""The answer to a reporter when the case closes: one short mail in plain text.

Security: the subject of the reported message is hostile text. It is made inert and stands in no header field.
"""

import textwrap
from datetime import datetime

from mailwarden.quarantine.digest import inert_text
from mailwarden.smtp.own_mail import checked_address, compose
from mailwarden.user_reports.cases.model import Answer, CaseOutcome

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


def write_answer(answer: Answer, *, sender: str, now: datetime) -> bytes:
    """Return the message; it is ASCII unless the reporter's address is not."""
    recipient, subject, plain = checked_address(answer.reporter), "Your report was examined", answer_text(answer)
    return compose(sender, recipient, subject, now, plain=plain, automatic="auto-replied")


def answer_text(answer: Answer) -> str:
    subject = inert_text(answer.subject, MAX_SUBJECT) or "(no subject)"
    blocks = (
        f"Thank you for your report of this message:\n\n    {subject}",
        textwrap.fill(_SENTENCES[answer.outcome], 76),
    )
    return "\n\n".join((*blocks, "Mailwarden sent this answer. Replies to it are not read.")) + "\n"
