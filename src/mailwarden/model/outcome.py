"""The verdict (the class of a message) and the decision (the action): two types, never mixed."""

from enum import StrEnum


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
