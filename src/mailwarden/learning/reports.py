"""A report about one message, and whether the engine was trained with it."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

MIN_REPORTS = 200  # of threats and of good mail each, before the classifier is used


class Kind(StrEnum):
    """The kind of a report."""

    RELEASED = "released"  # from quarantine
    PHISHING = "phishing"
    SPAM = "spam"
    FINE = "fine"

    @property
    def is_threat(self) -> bool:
        return self in (Kind.PHISHING, Kind.SPAM)


class TrainingState(StrEnum):
    """Whether the engine was trained with a report."""

    WAITING = "waiting"
    LEARNED = "learned"
    REFUSED = "refused"  # too little text, a test message of spam filters, or the engine failed twice
    NOT_KEPT = "not-kept"  # the report came without the message, or the message is too large


class UserReport(Struct, frozen=True):
    """A stored report."""

    uid: UUID
    tenant: UUID
    kind: Kind
    state: TrainingState
    size: int
    ggrid: UUID | None
    subject: str
    reported_by: str
    reported_at: datetime


class NewReport(Struct, frozen=True):
    """A report to store; `contents` are sealed."""

    uid: UUID
    tenant: UUID
    kind: Kind
    digest: bytes
    size: int
    contents: bytes | None = None
    ggrid: UUID | None = None
    subject: str = ""


class PendingReport(Struct, frozen=True):
    """A report with which the wanted generation is not trained yet."""

    uid: UUID
    tenant: UUID
    kind: Kind
    contents: bytes
    generation: int


class TrainingStatus(Struct, frozen=True):
    """The reports that a tenant's classifier is trained with."""

    tenant: UUID
    generation: int = 1
    wanted: int = 1
    threats: int = 0
    fine: int = 0
    waiting: int = 0

    @property
    def speaks(self) -> bool:
        """Return whether the classifier has enough reports of both sides to be used."""
        return self.threats >= MIN_REPORTS and self.fine >= MIN_REPORTS

    @property
    def rebuilding(self) -> bool:
        return self.wanted > self.generation

    @property
    def learner(self) -> str:
        return learner_of(self.tenant, self.generation)


def learner_of(tenant: UUID, generation: int) -> str:
    """Return the name under which the engine stores the classifier of a tenant's generation."""
    return f"{tenant.hex}.{generation}"
