"""A held message: what is known of it, who it is for, and what became of it for each of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from mailwarden.model.outcome import Verdict

DEFAULT = "default"  # the days of every verdict that has none of its own
OPEN_TO_RECIPIENTS = frozenset({Verdict.SPAM, Verdict.SUSPICIOUS})  # what they may have released without anybody else
BY_RECIPIENT = "digest:"  # who asked for a release, before the address of a recipient who did it by a link


class State(StrEnum):
    """What became of a held message for one recipient."""

    HELD = "held"
    RELEASING = "releasing"  # somebody asked for it, and a guard is to do it
    RELEASED = "released"  # and accepted by the next hop
    DELETED = "deleted"


class HeldRecipient(Struct, frozen=True):
    address: str
    state: State = State.HELD
    failure: str = ""  # why the last release came to nothing
    changed_by: str = ""
    changed_at: datetime | None = None


class HeldMessage(Struct, frozen=True):
    uid: UUID
    tenant: UUID
    ggrid: UUID
    vault: UUID
    address: bytes | None  # None: its bytes are given up
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
    whole: bool = False  # analysis looked at all of it

    @property
    def is_kept(self) -> bool:
        """Tell whether its bytes can be had."""
        return self.address is not None and not self.missing

    @property
    def is_open_to_recipients(self) -> bool:
        """Tell whether a recipient may have it released by a link."""
        return self.verdict in OPEN_TO_RECIPIENTS and self.whole and self.is_kept

    def in_state(self, state: State) -> tuple[str, ...]:
        return tuple(each.address for each in self.recipients if each.state is state)


class Place(Struct, frozen=True):
    """The last message of a page, after which the next one begins."""

    received: datetime
    uid: UUID


class Question(Struct, frozen=True):
    """Which held messages are wanted; what is None is left open. An address may be `@` and a domain."""

    tenant: UUID | None = None
    verdict: Verdict | None = None
    recipient: str | None = None
    sender: str | None = None
    text: str | None = None  # in the subject
    state: State | None = None  # of any recipient
    since: datetime | None = None
    after: Place | None = None


EVERYTHING = Question()


class Days(Struct, frozen=True):
    """For how long held messages are kept where the tenant says nothing else."""

    default: int = 30
    of: Mapping[str, int] = {}  # by verdict

    def for_verdict(self, verdict: str) -> int:
        return self.of.get(verdict, self.default)


class Release(Struct, frozen=True):
    """A release that a guard has taken on: who is to have the message, and who wants it."""

    message: HeldMessage
    recipients: Sequence[str]
    asked_by: str
