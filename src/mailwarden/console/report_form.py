"""What a person says of a message on a form: its kind, and the message itself where they give it.

Security: takes hostile bytes, and passes them on unread.
"""

from mailwarden.console.forms import Form
from mailwarden.errors import EmptyEmail, PayloadTooLarge, SchemaViolation
from mailwarden.learning.contents import MAX_CONTENTS
from mailwarden.learning.lesson import Kind, Lesson, State

# What can be said; that a message was released is told by the quarantine alone.
SAYABLE = (
    (Kind.PHISHING, "Phishing", "It wants passwords, money or access by deceit"),
    (Kind.SPAM, "Spam", "Nobody asked for it, and it means no other harm"),
    (Kind.FINE, "Fine", "It is wanted, or harmless"),
)


def said_kind(form: Form) -> Kind:
    """Return what was said, or say what can be."""
    said = form.text("kind")
    for kind, _, _ in SAYABLE:
        if said == kind:
            return kind
    raise SchemaViolation("Say what the message is: phishing, spam or fine.")


def given_contents(form: Form) -> bytes | None:
    """Return the message that was given, or None; one that could not be learned from is refused unread."""
    file = form.file("message")
    if file is None:
        return None
    if file.size > MAX_CONTENTS:
        raise PayloadTooLarge("The file is larger than 1 MiB: what is larger is not learned from.")
    return file.data()


def needed_contents(form: Form) -> bytes:
    """Return the message where there is nothing without it."""
    contents = given_contents(form)
    if contents is None:
        raise EmptyEmail("Choose the message as a file.")
    return contents


def notice_for(lesson: Lesson) -> str:
    """Return the code of what is said after a report."""
    return "report-unlearned" if lesson.state is State.NOT_KEPT else "report-kept"
