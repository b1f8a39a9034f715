"""How values read on a page: colours of verdicts and decisions, times, sizes, and what strangers wrote."""

from collections.abc import Mapping
from datetime import UTC, datetime

from mailwarden.learning.reports import TrainingState
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
    TrainingState.WAITING: "waits to be learned",
    TrainingState.LEARNED: "learned",
    TrainingState.REFUSED: "not learned: too little text, a test message of spam filters, or the engine failed",
    TrainingState.NOT_KEPT: "not learned: the message itself was not given",
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


DONE = "done"

NOTICES: Mapping[str, str] = {
    "signed-out": "You are signed out.",
    "not-done": "Your session had ended, so what you sent was not done. Sign in and do it once more.",
    "tenant-made": "The tenant is made. Guards know it within a second.",
    "tenant-changed": "The tenant is changed. Guards know it within a second.",
    "password-changed": "Your password is changed. Your other sessions have ended.",
    "totp-changed": "Your new authenticator is in use.",
    "passkey-added": "The passkey is yours. You can sign in with it alone.",
    "passkey-removed": "The passkey is removed.",
    "key-revoked": "The key is revoked. Within five seconds it is refused everywhere.",
    "person-moved": "The role is changed. It holds at once.",
    "person-disabled": "The person is shut out, and their sessions have ended.",
    "person-enabled": "The person may sign in again.",
    "link-withdrawn": "The link is good no longer.",
    "entries-added": "The list is changed. Scans go by it within two seconds.",
    "nothing-new": "All of that is in the list already: nothing was changed.",
    "entry-changed": "The entry is changed.",
    "entries-deleted": "The entries are gone. The history of the list can bring them back.",
    "nothing-deleted": "None of the entries was in the list: nothing was changed.",
    "undone": "The change is undone. This is the change that did it.",
    "undone-partly": "The change is undone, but for entries that were changed since: those are left as they are.",
    "nothing-to-undo": "There is nothing to undo: every entry of this change was changed since.",
    "report-kept": "Thank you. The report is kept, and the message is learned in a moment.",
    "report-unlearned": "Thank you. The report is kept. The message itself was not given, so that nothing is learned.",
    "report-withdrawn": "The report is taken back. Where it was learned already, all is learned anew without it.",
    "learning-reset": "Everything that was learned for this tenant is forgotten.",
    "release-asked": "The release is asked for. A guard does it within seconds, and this page tells what came of it.",
    "release-allowed": "The sender is allowed, and the release is asked for. A guard does it within seconds.",
    "held-deleted": "It is deleted.",
    "held-deleted-blocked": "It is deleted, and the sender is blocked.",
    "weights-changed": "The weights are changed. Guards know them within a second.",
    "session-ended": "The session has ended.",
    "sessions-ended": "Your other sessions have ended.",
}
