"""A lesson: what somebody said of one message, and how far it has been learned."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

ENOUGH = 200  # lessons of each side, before what was learned may say anything


class Kind(StrEnum):
    """What somebody said of a message."""

    RELEASED = "released"  # from quarantine
    PHISHING = "phishing"
    SPAM = "spam"
    FINE = "fine"

    @property
    def is_threat(self) -> bool:
        return self in (Kind.PHISHING, Kind.SPAM)


class State(StrEnum):
    """How far a lesson has been learned."""

    WAITING = "waiting"
    LEARNED = "learned"
    REFUSED = "refused"  # too little text to learn from, a test of spam filters, or the engine failed at it twice
    NOT_KEPT = "not-kept"  # the message was not given, or is too large


class Lesson(Struct, frozen=True):
    uid: UUID
    tenant: UUID
    kind: Kind
    state: State
    size: int
    ggrid: UUID | None
    subject: str
    reported_by: str
    reported_at: datetime


class NewLesson(Struct, frozen=True):
    """A lesson that is to be kept; `contents` are sealed."""

    uid: UUID
    tenant: UUID
    kind: Kind
    digest: bytes
    size: int
    contents: bytes | None = None
    ggrid: UUID | None = None
    subject: str = ""


class DueLesson(Struct, frozen=True):
    """A lesson that is not learned yet in the generation that is wanted."""

    uid: UUID
    tenant: UUID
    kind: Kind
    contents: bytes
    generation: int


class Standing(Struct, frozen=True):
    """What a tenant's statistics are made of."""

    tenant: UUID
    generation: int = 1
    wanted: int = 1
    threats: int = 0
    fine: int = 0
    waiting: int = 0

    @property
    def speaks(self) -> bool:
        """Tell whether there is enough of both sides."""
        return self.threats >= ENOUGH and self.fine >= ENOUGH

    @property
    def rebuilding(self) -> bool:
        return self.wanted > self.generation

    @property
    def learner(self) -> str:
        return learner_of(self.tenant, self.generation)


def learner_of(tenant: UUID, generation: int) -> str:
    """Return the name under which the engine keeps the statistics of a tenant's generation."""
    return f"{tenant.hex}.{generation}"
