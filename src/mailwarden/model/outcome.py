"""The verdict (the class of a message), the decision (the action), and the reasons and steps behind them."""

from enum import StrEnum

from msgspec import Struct

from mailwarden.model.listing import ListHit
from mailwarden.model.place import WHOLE_MESSAGE, Place


class Verdict(StrEnum):
    """The class of a message; the policy considers them in this order."""

    MALWARE = "malware"
    PHISHING = "phishing"
    FRAUD = "fraud"
    SPOOF = "spoof"
    BLOCKED = "blocked"
    SPAM = "spam"
    SUSPICIOUS = "suspicious"
    BULK = "bulk"
    CLEAN = "clean"
    UNKNOWN = "unknown"


class Decision(StrEnum):
    """The action for a message."""

    UNDECIDED = "undecided"
    DELIVER = "deliver"
    QUARANTINE = "quarantine"
    BOUNCE = "bounce"
    DROP = "drop"


# From the mildest to the most severe. Undecided is above deliver: an incomplete analysis must not become a delivery.
SEVERITY = (Decision.DELIVER, Decision.UNDECIDED, Decision.QUARANTINE, Decision.BOUNCE, Decision.DROP)
_VERDICTS = tuple(Verdict)


def severity(decision: Decision, verdict: Verdict) -> tuple[int, int]:
    """Return the rank of an outcome: by its decision, then by its verdict."""
    return SEVERITY.index(decision), -_VERDICTS.index(verdict)


class Reason(Struct, frozen=True, omit_defaults=True):
    """One matching rule: its weight, its verdict, and its sentence."""

    rule: str
    analyzer: str
    verdict: Verdict
    weight: int
    summary: str
    place: Place = WHOLE_MESSAGE
    tag: str = ""


class Judgement(Struct, frozen=True, omit_defaults=True):
    """The verdict, its reasons, and the points of each verdict."""

    verdict: Verdict
    summary: str
    reasons: tuple[Reason, ...]
    points: dict[str, int]
    tags: tuple[str, ...]
    incomplete: bool = False
    forces_quarantine: bool = False
    headline: str = ""  # the strongest reason for the verdict; empty if no weight explains it

    @property
    def short(self) -> str:
        """Return the sentence that stands for the whole judgement where there is room for one."""
        return self.headline or self.summary


class Step(Struct, frozen=True):
    """One step of the decision trace and its outcome."""

    step: str
    outcome: str


class Ruling(Struct, frozen=True, omit_defaults=True):
    """The decision, the tags it adds, the decision trace, and the list entry that decided."""

    decision: Decision
    tags: tuple[str, ...]
    trace: tuple[Step, ...]
    entry: ListHit | None = None
