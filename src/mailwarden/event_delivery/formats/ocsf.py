"""Events in the Open Cybersecurity Schema Framework (OCSF) 1.5.0.

Messages are Email Activity (4009); convictions and reports are a Detection Finding (2004). Logins are
Authentication (3002), engines Application Lifecycle (6002), everything that administrators change Entity Management
(3004). All data of the event is in `unmapped`, under its native names.
"""

import re
from collections.abc import Callable, Mapping
from typing import cast

from msgspec import Struct

from mailwarden import __version__
from mailwarden.events.catalogue import Event
from mailwarden.model.outcome import Decision, Verdict

VERSION = "1.5.0"
PRODUCT: Mapping[str, object] = {"name": "Mailwarden", "vendor_name": "Mailwarden", "version": __version__}

Document = dict[str, object]

_ADDRESS = re.compile(r"[a-zA-Z0-9!#$%&'*+-/=?^_`{|}~.]+@[a-zA-Z0-9-]+\.[a-zA-Z0-9-.]+")  # the type email_t

_SEVERITIES = {1: "Informational", 2: "Low", 3: "Medium", 4: "High"}
CONVICTIONS = {Verdict.MALWARE: 4, Verdict.PHISHING: 4, Verdict.FRAUD: 4, Verdict.SPOOF: 3}
_LOW = frozenset({Verdict.BLOCKED, Verdict.SPAM, Verdict.SUSPICIOUS})
_ACTIONS = {0: "Unknown", 1: "Allowed", 2: "Denied"}
# For each decision: the action and the disposition of the profile `security_control`.
_OUTCOMES: Mapping[str, tuple[int, int, str]] = {
    Decision.DELIVER: (1, 1, "Allowed"),
    Decision.QUARANTINE: (2, 3, "Quarantined"),
    Decision.BOUNCE: (2, 25, "Rejected"),
    Decision.DROP: (2, 6, "Dropped"),
    Decision.UNDECIDED: (0, 0, "Unknown"),
    "message.held": (2, 3, "Quarantined"),
    "message.released": (1, 9, "Restored"),
    "message.deleted": (2, 5, "Deleted"),
}


class EventClass(Struct, frozen=True):
    uid: int
    name: str
    category: str
    activities: Mapping[int, str]

    @property
    def category_uid(self) -> int:
        return self.uid // 1000


EMAIL = EventClass(4009, "Email Activity", "Network Activity", {1: "Send", 3: "Scan", 99: "Other"})
FINDING = EventClass(2004, "Detection Finding", "Findings", {1: "Create"})
LOGIN = EventClass(3002, "Authentication", "Identity & Access Management", {1: "Logon"})
ENTITY = EventClass(
    3004,
    "Entity Management",
    "Identity & Access Management",
    {1: "Create", 3: "Update", 4: "Delete", 9: "Disable", 99: "Other"},
)
LIFECYCLE = EventClass(6002, "Application Lifecycle", "Application Activity", {3: "Start", 4: "Stop"})
BASE = EventClass(0, "Base Event", "Uncategorized", {99: "Other"})


def ocsf_document(event: Event) -> Document:
    """Return the event as one OCSF event."""
    return TABLE.get(event.type, _unknown)(event)


def _document(event: Event, kind: EventClass, activity: int, message: str, *, severity: int = 1) -> Document:
    name = kind.activities[activity]
    metadata: Document = {
        "version": VERSION,
        "product": PRODUCT,
        "uid": str(event.id),
        "event_code": event.type,
        "log_name": "events",
    }
    if event.tenant is not None:
        metadata["tenant_uid"] = str(event.tenant)
    return {
        "activity_id": activity,
        "activity_name": name,
        "category_uid": kind.category_uid,
        "category_name": kind.category,
        "class_uid": kind.uid,
        "class_name": kind.name,
        "type_uid": kind.uid * 100 + activity,
        "type_name": f"{kind.name}: {name}",
        "severity_id": severity,
        "severity": _SEVERITIES[severity],
        "time": int(event.time.timestamp() * 1000),
        "message": message,
        "metadata": metadata,
        "unmapped": dict(event.data),
    }


def _judged(event: Event) -> Document:
    verdict, decision = Verdict(_text(event, "verdict")), _text(event, "decision")
    if verdict not in CONVICTIONS:
        severity = 2 if verdict in _LOW else 1
        return _email(
            event, 3, f"Message scanned: verdict {verdict}, decision {decision}.", decision, severity=severity
        )
    finding = _finding(
        event, _text(event, "ggrid"), f"Message with verdict {verdict}", verdict.value, severity=CONVICTIONS[verdict]
    )
    finding["message"] = f"Message scanned: verdict {verdict}, decision {decision}."
    finding["evidences"] = [{"email": _email_object(event)}]
    finding["is_alert"] = True
    _add_outcome(finding, decision)
    return finding


def _finding(event: Event, uid: str, title: str, kind: str, *, severity: int) -> Document:
    document = _document(event, FINDING, 1, f"{title}.", severity=severity)
    document["finding_info"] = {"uid": uid, "title": title, "types": [kind], "created_time": document["time"]}
    document["status_id"], document["status"] = 1, "New"
    return document


def _email(event: Event, activity: int, message: str, outcome: str, *, severity: int = 1) -> Document:
    document = _document(event, EMAIL, activity, message, severity=severity)
    document["direction_id"], document["direction"] = 0, "Unknown"
    document["email"] = _email_object(event)
    address = _text(event, "remoteAddress")
    if address:
        document["src_endpoint"] = {"ip": address}
    if activity == 99:
        document["activity_name"] = event.type
    if outcome:
        _add_outcome(document, outcome)
    return document


def _add_outcome(document: Document, outcome: str) -> None:
    action, disposition, name = _OUTCOMES[outcome]
    document["action_id"], document["action"] = action, _ACTIONS[action]
    document["disposition_id"], document["disposition"] = disposition, name
    cast("Document", document["metadata"])["profiles"] = ["security_control"]


def _email_object(event: Event) -> Document:
    """Return the message; an address that OCSF's type does not allow is a mailbox, which is any text."""
    sender, author = _text(event, "sender"), _text(event, "fromAddress")
    recipients = cast("list[str]", event.data.get("recipients") or [])
    valid = [recipient for recipient in recipients if _ADDRESS.fullmatch(recipient)]
    author = author or sender
    found: Document = {
        "uid": _text(event, "ggrid") or event.subject,
        "from" if _ADDRESS.fullmatch(author) else "from_mailbox": author,
        "subject": _text(event, "subject"),
        "message_uid": _text(event, "messageId"),
        "smtp_from": sender if _ADDRESS.fullmatch(sender) else "",
        "smtp_to": valid,
        "to_mailboxes": [recipient for recipient in recipients if recipient not in valid],
        "size": event.data.get("size"),
    }
    return {"to": valid, **{key: value for key, value in found.items() if value}}


def _held(event: Event) -> Document:
    return _email(event, 3, "A message was put into quarantine.", event.type, severity=2)


def _released(event: Event) -> Document:
    return _email(event, 1, "A held message was delivered.", event.type)


def _deleted(event: Event) -> Document:
    return _email(event, 99, "A held message was deleted.", event.type)


def _reported(event: Event) -> Document:
    kind = _text(event, "kind")
    return _finding(event, _text(event, "uid"), f"Message reported as {kind}", kind, severity=2)


def _login(event: Event) -> Document:
    document = _authentication(event, {"uid": _text(event, "user"), "name": _text(event, "name")})
    document["message"] = "A user logged in to the console."
    document["status_id"], document["status"] = 1, "Success"
    document["auth_protocol_id"], document["auth_protocol"] = 99, _text(event, "method")
    return document


def _login_failed(event: Event) -> Document:
    document = _authentication(event, {"uid": _text(event, "user") or "unknown"})
    document["message"] = "A login to the console was rejected."
    document["severity_id"], document["severity"] = 2, _SEVERITIES[2]
    document["status_id"], document["status"] = 2, "Failure"
    document["status_detail"] = f"wrong {_text(event, 'step')}"
    return document


def _authentication(event: Event, user: Document) -> Document:
    document = _document(event, LOGIN, 1, "")
    document["user"] = {key: value for key, value in user.items() if value}
    document["service"] = {"name": "Mailwarden console"}
    document["is_remote"] = True
    address = _text(event, "address")
    if address:
        document["src_endpoint"] = {"ip": address}
    return document


def _engine(event: Event) -> Document:
    down = event.type == "engine.down"
    engine, guard = _text(event, "engine"), _text(event, "guard")
    document = _document(
        event,
        LIFECYCLE,
        4 if down else 3,
        f"The engine {engine} of guard {guard} {'does not answer' if down else 'answers'}.",
        severity=3 if down else 1,
    )
    document["app"] = {"name": engine, "vendor_name": engine}
    if down:
        document["status_detail"] = _text(event, "detail") or "no answer"
    return document


def _entity(activity: int, kind: str, name: str, uid: str, message: str) -> Callable[[Event], Document]:
    """Return the mapping of a change to an entity; `name` and `uid` are fields of the data, `uid` may be empty."""

    def build(event: Event) -> Document:
        severity = 3 if activity == 9 else 1
        document = _document(event, ENTITY, activity, message, severity=severity)
        if activity == 99:
            document["activity_name"] = event.type
        document["entity"] = {
            "name": _text(event, name),
            "uid": _text(event, uid) or event.subject,
            "type": kind,
        }
        if "by" in event.data:
            document["actor"] = _actor(event)
        return document

    return build


def _actor(event: Event) -> Document:
    return {"user": {"name": _text(event, "by")}}


def _unknown(event: Event) -> Document:
    document = _document(event, BASE, 99, f"Event {event.type}.")
    document["activity_name"] = event.type
    return document


def _text(event: Event, key: str) -> str:
    value = event.data.get(key)
    return "" if value is None else str(value)


TABLE: Mapping[str, Callable[[Event], Document]] = {
    "message.scanned": _judged,
    "message.held": _held,
    "message.released": _released,
    "message.deleted": _deleted,
    "message.reported": _reported,
    "list.changed": _entity(3, "List", "list", "", "Entries of a list changed."),
    "key.created": _entity(1, "API key", "name", "keyId", "An API key was created."),
    "key.revoked": _entity(4, "API key", "name", "keyId", "An API key was revoked."),
    "user.login": _login,
    "user.login-failed": _login_failed,
    "engine.down": _engine,
    "engine.up": _engine,
    "tenant.created": _entity(1, "Tenant", "name", "", "A tenant was created."),
    "tenant.changed": _entity(3, "Tenant", "name", "", "The settings of a tenant changed."),
    "receiver.disabled": _entity(9, "Event receiver", "receiver", "receiverUid", "An event receiver was disabled."),
    "receiver.test": _entity(99, "Event receiver", "receiver", "", "A test event."),
}
