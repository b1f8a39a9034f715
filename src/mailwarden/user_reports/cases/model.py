"""Cases and their reports: frozen records, the outcomes, and the rule by which reporters agree.

Agreement raises the priority of a case and nothing else: SPF and DKIM authenticate the domain of a reporter, not the
address, so that one reporter may write as several.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from mailwarden.user_reports.mailbox.report_mail import ReportFormat
from mailwarden.user_reports.reports import Kind

MIN_AGREEING = 2  # different persons
MAX_TRAINED = 20  # of one case
NOT_STORED = "not-stored"  # a report without a copy of the message


class CaseState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


class CaseOutcome(StrEnum):
    """The outcome with which an analyst closes a case."""

    MALICIOUS = "malicious"
    SPAM = "spam"
    HARMLESS = "harmless"
    UNDECIDED = "undecided"

    @property
    def kind(self) -> Kind | None:
        """Return the kind that the filter is trained with; None: with nothing."""
        return _KINDS.get(self)


_KINDS = {CaseOutcome.MALICIOUS: Kind.PHISHING, CaseOutcome.SPAM: Kind.SPAM, CaseOutcome.HARMLESS: Kind.GOOD}


class AnswerState(StrEnum):
    """The answer to the reporter."""

    NONE = "none"  # the report gets none: it is not verified, or a program wrote it
    WANTED = "wanted"  # when the case closes
    DUE = "due"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"


class NewCaseReport(Struct, frozen=True):
    """One reported message to store; without `verified` it joins no case. Its texts are storable."""

    uid: UUID
    tenant: UUID
    mail: bytes
    number: int
    reporter: str
    verified: bool
    kind: Kind
    format: ReportFormat
    message_id: str = ""
    subject: str = ""
    sender: str = ""
    ggrid: UUID | None = None
    campaign: UUID | None = None
    digest: bytes | None = None
    contents: bytes | None = None  # sealed
    answered: bool = False


class CaseReport(Struct, frozen=True):
    """A stored report."""

    uid: UUID
    tenant: UUID
    case: UUID | None
    reporter: str
    kind: Kind
    format: ReportFormat
    message_id: str
    subject: str
    sender: str
    ggrid: UUID | None
    digest: bytes | None
    reported_at: datetime
    trained_as: str  # the kind that it was trained as, NOT_STORED, or "" before that
    answer: AnswerState
    kept: bool  # the message is stored


class CaseCursor(Struct, frozen=True):
    """A place in the order of cases: by rank, then by the latest change."""

    rank: int
    changed_at: datetime
    uid: UUID


class Case(Struct, frozen=True):
    """One case, with the number of its reports and of their reporters."""

    uid: UUID
    tenant: UUID
    campaign: UUID | None
    subject: str
    sender: str
    state: CaseState
    outcome: CaseOutcome | None
    opened_at: datetime
    changed_at: datetime
    closed_by: str
    reports: int
    reporters: int  # different persons
    agreed: Kind | None = None  # the kind on which they agree: an open case with one has priority
    ggrid: UUID | None = None  # the message of history that was reported first

    @property
    def is_open(self) -> bool:
        return self.state is CaseState.OPEN

    @property
    def has_priority(self) -> bool:
        return self.is_open and self.agreed is not None

    @property
    def cursor(self) -> CaseCursor:
        return CaseCursor(2 if self.has_priority else int(self.is_open), self.changed_at, self.uid)


class Answer(Struct, frozen=True):
    """An answer that one guard has claimed."""

    report: UUID
    tenant: UUID
    reporter: str
    subject: str
    outcome: CaseOutcome
    attempts: int


class Stored(StrEnum):
    """The outcome of storing one reported message."""

    OPENED = "opened"
    JOINED = "joined"
    REPEATED = "repeated"  # the reporter had reported it
    UNVERIFIED = "unverified"
    LIMITED = "limited"  # the reporter has too many reports of the day


class Added(Struct, frozen=True):
    stored: Stored
    case: UUID | None = None


def base_address(address: str) -> str:
    """Return the address in lower case without its sub-address (RFC 5233): ann+x@ is the mailbox of ann@."""
    local, at, domain = address.lower().rpartition("@")
    return f"{local.partition('+')[0] or local}{at}{domain}"


def agreed_kind(kinds: Sequence[Kind]) -> Kind | None:
    """Return the kind on which two reporters agree while none disagrees; `kinds` has the latest of each."""
    if len(kinds) < MIN_AGREEING or len({kind.is_threat for kind in kinds}) != 1:
        return None
    if not kinds[0].is_threat:
        return Kind.GOOD
    return Kind.PHISHING if kinds.count(Kind.PHISHING) >= MIN_AGREEING else Kind.SPAM
