"""The texts of the console: colours, roles, notices, and the format of times, sizes and untrusted text."""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus

from mailwarden.console.language import ENGLISH, N_, current_language, decimal_text, gettext, ngettext
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.user_reports.reports import TrainingState

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
    "good": "green",
    "released": "green",
    "delivered": "azure",
    "quarantined": "orange",
    "bounced": "red",
    "dropped": "red",
    "held": "orange",
    "releasing": "azure",
    "deleted": "secondary",
    "GREEN": "green",
    "YELLOW": "yellow",
    "RED": "red",
    "up": "green",
    "active": "green",
    "valid": "green",
    "expiring": "yellow",
    "used": "green",
    "done": "green",
    "open": "azure",
    "closed": "secondary",
    "priority": "orange",
    "malicious": "red",
    "harmless": "green",
    "waiting for the first request": "azure",
    "expired": "secondary",
    "revoked": "red",
    "disabled": "red",
    "paused": "secondary",
    "failing": "yellow",
    "finished": "green",
    "failed": "red",
    "incomplete": "yellow",
    "away": "red",
    "down": "red",
    "not scanning": "yellow",
    "old": "yellow",
    "stopping": "yellow",
}

# Words that are shown translated; the APIs and the search operators keep the English ones.
SHOWN_WORDS: frozenset[str] = frozenset(COLOURS) | {
    "balanced", "strict", "monitor",  # profiles
    "phishing", "spam", "good", "reported",  # reports of users
    "acts", "loses", "expired",  # entries that match a value
    "global", "tenant",  # scopes
    "added", "changed", "deleted",  # lines of a change
    "finished", "failed", "skipped",  # analyzers
    "none", "this one", "never used", "disabled", "undecided",
    "malware", "high", "low", "page", "search",
    "sender", "links", "text", "files", "message", "engines", "lists",  # subjects of facts
    "waiting", "applying", "applied", "rejected", "superseded",  # updates of feeds
}  # fmt: skip

ROLES: Mapping[str, str] = {
    "deployment-administrator": N_("Deployment administrator"),
    "tenant-administrator": N_("Tenant administrator"),
    "analyst": N_("Analyst"),
    "auditor": N_("Auditor"),
}

# The training state of a report.
TRAINING_STATES: Mapping[str, str] = {
    TrainingState.WAITING: N_("waiting for training"),
    TrainingState.TRAINED: N_("trained"),
    TrainingState.REJECTED: N_("not trained: too little text, a test message of spam filters, or the engine failed"),
    TrainingState.NOT_STORED: N_("not trained: the report came without the message"),
}

WORDS: Mapping[str, Mapping[str, str]] = {"colours": COLOURS, "training": TRAINING_STATES}

# Bidirectional embeddings, overrides and isolates, which reorder the text that follows.
_TURNING = {code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_UNITS = ("B", "KiB", "MiB", "GiB")

_HEALTH = N_("Try again in a moment. If it stays so, an administrator sees the cause on the page Health.")
# Advice for the user about an error, by status.
ADVICE: Mapping[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: N_("Go back, correct what the sentence above names, and try again."),
    HTTPStatus.FORBIDDEN: (
        N_(
            "If you sent a form, open its page again and repeat it: after a new sign-in old forms are invalid. "
            "If your role is the reason, an administrator can change it on the page Users."
        )
    ),
    HTTPStatus.NOT_FOUND: (
        N_(
            "The address may be wrong, the object deleted, or it belongs to a tenant that you do not see. "
            "Use the menu, or search for it."
        )
    ),
    HTTPStatus.METHOD_NOT_ALLOWED: N_("Open the page with the form and send it again."),
    HTTPStatus.CONFLICT: N_("It was changed in the meantime. Open the page again and repeat the action."),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: N_("Send a smaller file or less text."),
    HTTPStatus.TOO_MANY_REQUESTS: N_("Wait a moment and try again."),
    HTTPStatus.INTERNAL_SERVER_ERROR: (
        N_("Try again. If it stays so, give the request id below to an administrator: the log of abby has the cause.")
    ),
    HTTPStatus.BAD_GATEWAY: _HEALTH,
    HTTPStatus.SERVICE_UNAVAILABLE: _HEALTH,
}

DONE = "done"

NOTICES: Mapping[str, str] = {
    "signed-out": N_("You are signed out."),
    "not-done": N_("Your session had expired, so the action was not performed. Sign in and repeat it."),
    "tenant-made": N_("The tenant was created. Guards use it within a second."),
    "tenant-changed": N_("The tenant was changed. Guards use it within a second."),
    "password-changed": N_("Your password was changed. Your other sessions have ended."),
    "totp-changed": N_("Your new authenticator is in use."),
    "passkey-added": N_("The passkey was added. It replaces password and code at login."),
    "passkey-removed": N_("The passkey was removed."),
    "key-revoked": N_("The key was revoked. It stops working within five seconds."),
    "report-email-changed": N_("The weekly email was changed."),
    "search-saved": N_("The search was saved."),
    "search-deleted": N_("The saved search was deleted."),
    "user-moved": N_("The role was changed. It applies at once."),
    "user-disabled": N_("The user was disabled, and their sessions have ended."),
    "user-enabled": N_("The user was enabled."),
    "link-withdrawn": N_("The link was withdrawn."),
    "entries-added": N_("The list was changed. Scans use it within two seconds."),
    "nothing-new": N_("All entries are in the list already. Nothing was changed."),
    "entry-changed": N_("The entry was changed."),
    "entries-deleted": N_("The entries were deleted. You can undo this in the history of the list."),
    "nothing-deleted": N_("None of the entries was in the list. Nothing was changed."),
    "feed-approved": N_("The update was approved and is applied within a minute."),
    "feed-rejected": N_("The update was rejected. The list did not change."),
    "feed-due": N_("The feed is fetched within a minute."),
    "receiver-made": N_("The receiver was added. It gets the events from now on."),
    "receiver-tested": N_("The receiver accepted the test event."),
    "receiver-paused": N_("Deliveries are paused. Events are kept, and sent after the receiver is enabled."),
    "receiver-enabled": N_("Deliveries continue after the last acknowledged event."),
    "receiver-deleted": N_("The receiver was deleted."),
    "undone": N_("The change was undone."),
    "undone-partly": N_("The change was undone, except for entries that changed since."),
    "nothing-to-undo": N_("Nothing to undo: every entry of this change has changed since."),
    "case-closed": N_("The case is closed. Its reporters get an answer."),
    "report-kept": N_("Thank you. The report is stored, and trains the filter in a moment."),
    "report-untrained": N_("Thank you. The report is stored. Without the message it trains nothing."),
    "reported-several": N_("Thank you. The reports are stored. Without the messages they train nothing."),
    "report-withdrawn": N_("The report was undone. If it was trained already, the statistics are rebuilt without it."),
    "training-reset": N_("The training of this tenant was deleted."),
    "release-asked": N_(
        "The release was requested. A guard delivers the message in seconds. This page shows the result."
    ),
    "release-allowed": N_(
        "The sender was allowed and the release requested. A guard delivers the message within seconds."
    ),
    "held-deleted": N_("The message was deleted."),
    "blocked-several": N_("The chosen values are blocked. Guards use them within two seconds."),
    "blocked-deleted": N_("The chosen values are blocked, and the held messages of the campaign were deleted."),
    "campaign-deleted": N_("The held messages of the campaign were deleted."),
    "held-deleted-blocked": N_("The message was deleted and the sender blocked."),
    "rescanned": N_("The held message was scanned again. This is the new result; the held message stays as it is."),
    "weights-changed": N_("The weights were changed. Guards use them within a second."),
    "weights-undone": N_("The change was undone. Guards use the weights within a second."),
    "weights-not-undone": N_("Nothing was undone: a weight of this change has changed since."),
    "language-changed": N_("The console now uses this language."),
    "time-zone-changed": N_("The console now shows times in this zone."),
    "session-ended": N_("The session has ended."),
    "sessions-ended": N_("Your other sessions have ended."),
}


def role_text(role: str, *, inside: bool = False) -> str:
    """Return the name of a role; `inside` a sentence English writes it in lower case."""
    text = gettext(ROLES[role])
    return text.lower() if inside and current_language() is ENGLISH else text


def script_texts() -> Mapping[str, str]:
    """Return the texts of our scripts, by the names that the scripts use."""
    return {
        "recentSearch": gettext("recent search"),
        "entry": ngettext("entry", "entries", 1),
        "entries": ngettext("entry", "entries", 2),
        "noAnswer": gettext("The console does not answer."),
        "palette": gettext("Go to a page, a tenant or a search"),
        "paletteHint": gettext("Page, tenant, list, or words to search for"),
        "paletteField": gettext("Go to or search for"),
        "paletteList": gettext("Entries"),
        "suggestions": gettext("Suggestions"),
        "suggestion": ngettext("suggestion", "suggestions", 2),
        "selected": gettext("selected"),
        "message": ngettext("message", "messages", 1),
        "messages": ngettext("message", "messages", 2),
        "copied": gettext("Copied"),
        "notCounted": gettext("not counted in time"),
        "wrongPassword": gettext("The password is wrong."),
        "passkeyRefused": gettext("The server did not agree. Reload the page and try again."),
        "passkeyCancelled": gettext("Cancelled, or there is no passkey for this site."),
    }


def visible(text: str | None) -> str:
    """Return untrusted text with bidirectional control characters spelled out, so that it cannot be reordered."""
    return (text or "").translate(_TURNING)


def moment_value(moment: datetime | None) -> str:
    """Return a time as RFC 3339 in UTC."""
    return "" if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def file_size(size: int) -> str:
    """Return a number of bytes with a suitable unit."""
    amount = float(size)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            return f"{decimal_text(amount, 0 if unit == 'B' else 1)} {unit}"
        amount /= 1024
    raise AssertionError("the last unit takes everything")
