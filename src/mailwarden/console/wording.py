"""How values read on a page: colours of verdicts and decisions, times, sizes, and what strangers wrote."""

from collections.abc import Mapping
from datetime import UTC, datetime

from mailwarden.learning.lesson import State
from mailwarden.model.outcome import Decision, Verdict

# Tabler's colour names. A colour never speaks alone: the word stands on it.
COLOURS: Mapping[str, str] = {
    Verdict.MALWARE: "red",
    Verdict.PHISHING: "red",
    Verdict.FRAUD: "red",
    Verdict.SPOOF: "orange",
    Verdict.BLOCKED: "orange",
    Verdict.SPAM: "orange",
    Verdict.SUSPICIOUS: "yellow",
    Verdict.BULK: "azure",
    Verdict.CLEAN: "green",
    Verdict.UNKNOWN: "secondary",
    Decision.DELIVER: "green",
    Decision.QUARANTINE: "orange",
    Decision.BOUNCE: "red",
    Decision.DROP: "red",
    Decision.UNDECIDED: "secondary",
    "fine": "green",
    "released": "green",
    "held": "orange",
    "releasing": "azure",
    "deleted": "secondary",
    "GREEN": "green",
    "YELLOW": "yellow",
    "RED": "red",
    "up": "green",
    "active": "green",
    "valid": "green",
    "ending": "yellow",
    "expired": "secondary",
    "revoked": "red",
    "disabled": "red",
    "finished": "green",
    "failed": "red",
    "incomplete": "yellow",
    "away": "red",
    "down": "red",
    "not scanning": "yellow",
    "old": "yellow",
    "stopping": "yellow",
}

ROLES: Mapping[str, str] = {
    "deployment-administrator": "Deployment administrator",
    "tenant-administrator": "Tenant administrator",
    "analyst": "Analyst",
    "auditor": "Auditor",
}

# How far a report has been learned.
LESSONS: Mapping[str, str] = {
    State.WAITING: "waits to be learned",
    State.LEARNED: "learned",
    State.REFUSED: "not learned: the message has too little text, is a test of spam filters, or the engine failed",
    State.NOT_KEPT: "not learned: the message itself was not given",
}

WORDS: Mapping[str, Mapping[str, str]] = {"colours": COLOURS, "roles": ROLES, "lessons": LESSONS}

# Embeddings, overrides and isolates: what follows them is shown in another order than it is written in.
_TURNING = {code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_UNITS = ("B", "KiB", "MiB", "GiB")


def visible(text: str | None) -> str:
    """Return what a stranger wrote with the signs spelled out that turn its direction: nothing passes for another."""
    return (text or "").translate(_TURNING)


def moment_text(moment: datetime | None, absent: str = "never") -> str:
    """Return a time as people read it, in UTC."""
    return absent if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def moment_value(moment: datetime | None) -> str:
    """Return a time as machines read it."""
    return "" if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def file_size(size: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    amount = float(size)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit takes everything")
