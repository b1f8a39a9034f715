"""The texts of the console: colours, roles, notices, and the format of times, sizes and untrusted text."""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus

from mailwarden.learning.reports import TrainingState
from mailwarden.model.outcome import Decision, Verdict

# Tabler's colour names. A badge always shows the word as well.
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
    Verdict.UNKNOWN: "yellow",
    Decision.DELIVER: "green",
    Decision.QUARANTINE: "orange",
    Decision.BOUNCE: "red",
    Decision.DROP: "red",
    Decision.UNDECIDED: "yellow",
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
    "used": "green",
    "done": "green",
    "open": "azure",
    "waiting for the first request": "azure",
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

# The training state of a report.
TRAINING_STATES: Mapping[str, str] = {
    TrainingState.WAITING: "waits to be learned",
    TrainingState.LEARNED: "learned",
    TrainingState.REFUSED: "not learned: too little text, a test message of spam filters, or the engine failed",
    TrainingState.NOT_KEPT: "not learned: the report came without the message",
}

WORDS: Mapping[str, Mapping[str, str]] = {"colours": COLOURS, "roles": ROLES, "training": TRAINING_STATES}

# Bidirectional embeddings, overrides and isolates, which reorder the text that follows.
_TURNING = {code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_UNITS = ("B", "KiB", "MiB", "GiB")


def visible(text: str | None) -> str:
    """Return untrusted text with bidirectional control characters spelled out, so that it cannot be reordered."""
    return (text or "").translate(_TURNING)


def moment_text(moment: datetime | None, absent: str = "never") -> str:
    """Return a time in UTC for display."""
    return absent if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def moment_value(moment: datetime | None) -> str:
    """Return a time as RFC 3339 in UTC."""
    return "" if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def file_size(size: int) -> str:
    """Return a number of bytes with a suitable unit."""
    amount = float(size)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit takes everything")


_HEALTH = "Try again in a moment. If it stays so, an administrator sees the cause on the page Health."
# Advice for the user about an error, by status.
ADVICE: Mapping[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "Go back, correct what the sentence above names, and try again.",
    HTTPStatus.FORBIDDEN: (
        "If you sent a form, open its page again and repeat it: after a new sign-in old forms are invalid. "
        "If your role is the reason, an administrator can change it on the page People."
    ),
    HTTPStatus.NOT_FOUND: (
        "The address may be wrong, the object deleted, or it belongs to a tenant that you do not see. "
        "Use the menu, or search for it."
    ),
    HTTPStatus.METHOD_NOT_ALLOWED: "Open the page with the form and send it again.",
    HTTPStatus.CONFLICT: "It was changed in the meantime. Open the page again and repeat the action.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Send a smaller file or less text.",
    HTTPStatus.TOO_MANY_REQUESTS: "Wait a moment and try again.",
    HTTPStatus.INTERNAL_SERVER_ERROR: (
        "Try again. If it stays so, give the request id below to an administrator: the log of abby has the cause."
    ),
    HTTPStatus.BAD_GATEWAY: _HEALTH,
    HTTPStatus.SERVICE_UNAVAILABLE: _HEALTH,
}

DONE = "done"

NOTICES: Mapping[str, str] = {
    "signed-out": "You are signed out.",
    "not-done": "Your session had expired, so the action was not performed. Sign in and repeat it.",
    "tenant-made": "The tenant was created. Guards use it within a second.",
    "tenant-changed": "The tenant was changed. Guards use it within a second.",
    "password-changed": "Your password was changed. Your other sessions have ended.",
    "totp-changed": "Your new authenticator is in use.",
    "passkey-added": "The passkey was added. It replaces password and code at login.",
    "passkey-removed": "The passkey was removed.",
    "key-revoked": "The key was revoked. It stops working within five seconds.",
    "report-email-changed": "The weekly email was changed.",
    "search-saved": "The search was saved.",
    "search-deleted": "The saved search was deleted.",
    "person-moved": "The role was changed. It applies at once.",
    "person-disabled": "The user was disabled, and their sessions have ended.",
    "person-enabled": "The user was enabled.",
    "link-withdrawn": "The link was withdrawn.",
    "entries-added": "The list was changed. Scans use it within two seconds.",
    "nothing-new": "All entries are in the list already. Nothing was changed.",
    "entry-changed": "The entry was changed.",
    "entries-deleted": "The entries were deleted. You can undo this in the history of the list.",
    "nothing-deleted": "None of the entries was in the list. Nothing was changed.",
    "undone": "The change was undone by this change.",
    "undone-partly": "The change was undone, except for entries that changed since.",
    "nothing-to-undo": "Nothing to undo: every entry of this change has changed since.",
    "report-kept": "Thank you. The report is stored, and the message will be learned in a moment.",
    "report-unlearned": "Thank you. The report is stored. Without the message nothing is learned.",
    "reported-several": "Thank you. The reports are stored. Without the messages nothing is learned.",
    "report-withdrawn": "The report was undone. If it was learned already, the statistics are rebuilt without it.",
    "learning-reset": "Everything learned for this tenant was deleted.",
    "release-asked": "The release was requested. A guard delivers the message in seconds. This page shows the result.",
    "release-allowed": "The sender was allowed and the release requested. A guard delivers the message within seconds.",
    "held-deleted": "The message was deleted.",
    "blocked-several": "The chosen values are blocked. Guards use them within two seconds.",
    "blocked-deleted": "The chosen values are blocked, and the held messages of the campaign were deleted.",
    "campaign-deleted": "The held messages of the campaign were deleted.",
    "held-deleted-blocked": "The message was deleted and the sender blocked.",
    "rescanned": "The held message was scanned again. This is the new result; the held message stays as it is.",
    "weights-changed": "The weights were changed. Guards use them within a second.",
    "weights-undone": "The change was undone. Guards use the weights within a second.",
    "weights-not-undone": "Nothing was undone: a weight of this change has changed since.",
    "time-zone-changed": "The console now shows times in this zone.",
    "session-ended": "The session has ended.",
    "sessions-ended": "Your other sessions have ended.",
}
