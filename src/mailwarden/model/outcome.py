"""What a message is (verdict) and what happens to it (decision): two types, never mixed."""

from enum import StrEnum


class Verdict(StrEnum):
    """What the message IS; the order of the members is the order in which they are considered."""

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
    """What HAPPENS to the message."""

    UNDECIDED = "undecided"
    DELIVER = "deliver"
    QUARANTINE = "quarantine"
    BOUNCE = "bounce"
    DROP = "drop"


# From the mildest to the most severe. Undecided is above deliver: an unfinished analysis must never be outvoted by it.
SEVERITY = (Decision.DELIVER, Decision.UNDECIDED, Decision.QUARANTINE, Decision.BOUNCE, Decision.DROP)
_VERDICTS = tuple(Verdict)


def severity(decision: Decision, verdict: Verdict) -> tuple[int, int]:
    """Return the rank of an outcome: by its decision, and by its verdict where decisions are equal."""
    return SEVERITY.index(decision), -_VERDICTS.index(verdict)
