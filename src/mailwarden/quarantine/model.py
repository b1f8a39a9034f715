"""A held message, its recipients and their states, and the filter of a list of held messages."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from mailwarden.errors import MailwardenError
from mailwarden.model.outcome import Verdict

DEFAULT = "default"  # the key for verdicts without days of their own
OPEN_TO_RECIPIENTS = frozenset({Verdict.SPAM, Verdict.SUSPICIOUS})  # verdicts that a recipient may release alone
BY_RECIPIENT = "digest:"  # prefix of the actor's name when a recipient releases by a link


class State(StrEnum):
    """The state of a held message for one recipient."""

    HELD = "held"
    RELEASING = "releasing"  # requested; a guard will deliver it
    RELEASED = "released"  # accepted by the next hop
    DELETED = "deleted"


class HeldRecipient(Struct, frozen=True):
    address: str
    state: State = State.HELD
    failure: str = ""  # why the last release failed
    changed_by: str = ""
    changed_at: datetime | None = None


class HeldMessage(Struct, frozen=True):
    uid: UUID
    tenant: UUID
    ggrid: UUID
    vault: UUID
    address: bytes | None  # None once the bytes are to be removed
    size: int
    sender: str
    from_address: str
    from_name: str
    subject: str
    verdict: Verdict
    received: datetime
    expires: datetime
    missing: bool
    recipients: tuple[HeldRecipient, ...]
    whole: bool = False  # the analysis covered the whole message
    reason: str = ""  # the strongest one

    @property
    def is_kept(self) -> bool:
        """Return whether the bytes are still stored."""
        return self.address is not None and not self.missing

    @property
    def is_open_to_recipients(self) -> bool:
        """Return whether a recipient may release it by a link."""
        return self.verdict in OPEN_TO_RECIPIENTS and self.whole and self.is_kept

    def in_state(self, state: State) -> tuple[str, ...]:
        return tuple(each.address for each in self.recipients if each.state is state)


class ActionResult(Struct, frozen=True):
    """The result of an action on one of several messages: the message as it was before, and the error of the action."""

    uid: UUID
    message: HeldMessage | None = None
    error: MailwardenError | None = None


class PageCursor(Struct, frozen=True):
    """The last message of a page; the next page starts after it."""

    received: datetime
    uid: UUID


class HeldFilter(Struct, frozen=True):
    """A filter of held messages; None matches all. An address may be `@` and a domain."""

    tenant: UUID | None = None
    verdict: Verdict | None = None
    recipient: str | None = None
    sender: str | None = None
    text: str | None = None  # a part of the subject
    state: State | None = None  # of at least one recipient
    since: datetime | None = None
    after: PageCursor | None = None


NO_FILTER = HeldFilter()


class RetentionDays(Struct, frozen=True):
    """Days to keep held messages of tenants without a setting of their own."""

    default: int = 30
    of: Mapping[str, int] = {}  # by verdict

    def for_verdict(self, verdict: str) -> int:
        return self.of.get(verdict, self.default)


class Release(Struct, frozen=True):
    """A release that a guard has claimed: the recipients, the actor who requested it, and whether to train with it."""

    message: HeldMessage
    recipients: Sequence[str]
    requested_by: str
    train: bool = False
