"""The daily digest: one recipient's held messages, as inert text.

Security: senders and subjects are hostile text, which `inert_text` makes harmless; bodies are never shown.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.model.outcome import Verdict
from mailwarden.quarantine.model import HeldMessage, State

MAX_NAME = 60
MAX_SENDER = 120
MAX_SUBJECT = 150
MAX_REASON = 200

# Mail programs turn host names in plain text into links; these are the dots that they accept between labels.
_DOT = re.compile(r"(?<=[^\W_])[.\u3002\uff0e\uff61](?=[^\W\d_])")
_SCHEME = re.compile(r":(?=/|\\)")


class HeldForRecipient(Struct, frozen=True):
    """A held message and one of its recipients; `number` is the recipient's position, from 1."""

    message: HeldMessage
    number: int
    recipient: str
    state: State


class DigestLine(Struct, frozen=True):
    """The fields of a held message that a recipient sees, as inert text."""

    sender: str
    subject: str
    received: datetime
    verdict: Verdict
    reason: str

    @classmethod
    def of(cls, message: HeldMessage) -> "DigestLine":
        address = inert_text(message.from_address or message.sender, MAX_SENDER) or "(no address)"
        name = inert_text(message.from_name, MAX_NAME)
        return cls(
            f"{name} <{address}>" if name else address,
            inert_text(message.subject, MAX_SUBJECT) or "(no subject)",
            message.received,
            message.verdict,
            inert_text(message.reason, MAX_REASON),
        )


class Digest(Struct, frozen=True):
    """The digest of one recipient: the newest messages with details, and the uids of all."""

    tenant: UUID
    recipient: str  # as written in the newest message
    listed: Sequence[HeldForRecipient]
    uids: Sequence[UUID]


class DigestJob(Struct, frozen=True):
    """The digest of one recipient, claimed by one guard for a day."""

    tenant: UUID
    recipient: str


def inert_text(text: str, limit: int) -> str:
    """Return the text as one line without control characters and without links, cut to the limit.

    The brackets that break links do not count."""
    plain = " ".join("".join(each if each.isprintable() else " " for each in text[: limit * 8]).split())
    if len(plain) > limit:
        plain = plain[: limit - 1] + "…"
    return _SCHEME.sub("[:]", _DOT.sub("[.]", plain))


class DigestLink(Struct, frozen=True):
    """The link of one recipient to one held message; `number` is the recipient's position, from 1."""

    message: UUID
    number: int
    expires: datetime
