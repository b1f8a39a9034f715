"""A digest: what is held for one recipient, as that recipient may be shown it.

Security: subjects and senders are hostile; here they become inert. Nothing of a body is ever shown.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.model.outcome import Verdict
from mailwarden.quarantine.held import HeldMessage, State
from mailwarden.quarantine.inert_text import inert

MAX_NAME = 60
MAX_SENDER = 120
MAX_SUBJECT = 150
MAX_RECIPIENT = 320


class Waiting(Struct, frozen=True):
    """One held message of a recipient, with the number that the recipient has among those of the message."""

    message: HeldMessage
    number: int
    recipient: str
    state: State


class Shown(Struct, frozen=True):
    """What a recipient is shown of a held message; all of it can be written anywhere as text."""

    sender: str
    subject: str
    received: datetime
    verdict: Verdict

    @classmethod
    def of(cls, message: HeldMessage) -> "Shown":
        address = inert(message.from_address or message.sender, MAX_SENDER) or "(no address)"
        name = inert(message.from_name, MAX_NAME)
        return cls(
            f"{name} <{address}>" if name else address,
            inert(message.subject, MAX_SUBJECT) or "(no subject)",
            message.received,
            message.verdict,
        )


class Digest(Struct, frozen=True):
    """What is to be told to one recipient of one tenant: some with their details, the newest first, and all by uid."""

    tenant: UUID
    recipient: str  # as it was written last
    listed: Sequence[Waiting]
    uids: Sequence[UUID]


class Turn(Struct, frozen=True):
    """A digest that one guard has taken on for a day."""

    tenant: UUID
    recipient: str


FIRST = Turn(UUID(int=0), "")  # comes before every other
