"""Events in the Elastic Common Schema (ECS) 8.17.

Fields of ECS carry what ECS has a field for; all data of the event is in the custom field set `mailwarden`, under its
native names.
"""

from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from mailwarden import __version__
from mailwarden.events.catalogue import Event
from mailwarden.model.outcome import Verdict

VERSION = "8.17.0"

Document = dict[str, object]

ALERTS = frozenset({Verdict.MALWARE, Verdict.PHISHING, Verdict.FRAUD, Verdict.SPOOF})
# The technique of a phishing message in MITRE ATT&CK.
_PHISHING: Document = {
    "framework": "MITRE ATT&CK",
    "tactic": {"id": ["TA0001"], "name": ["Initial Access"]},
    "technique": {"id": ["T1566"], "name": ["Phishing"]},
}


class Row(Struct, frozen=True):
    """The categorisation of one event type: `kind`, `category` and `type` are fields of `event`."""

    category: str
    types: tuple[str, ...]
    outcome: str
    message: str
    kind: str = "event"


TABLE: Mapping[str, Row] = {
    "message.scanned": Row("email", ("info",), "success", "A message was scanned."),
    "message.held": Row("email", ("info",), "success", "A message was put into quarantine."),
    "message.released": Row("email", ("info",), "success", "A held message was delivered."),
    "message.deleted": Row("email", ("info",), "success", "A held message was deleted."),
    "message.reported": Row("email", ("info",), "success", "A message was reported."),
    "list.changed": Row("configuration", ("change",), "success", "Entries of a list changed."),
    "key.created": Row("iam", ("creation",), "success", "An API key was created."),
    "key.revoked": Row("iam", ("deletion",), "success", "An API key was revoked."),
    "user.login": Row("authentication", ("start",), "success", "A user logged in to the console."),
    "user.login-failed": Row("authentication", ("start",), "failure", "A login to the console was rejected."),
    "engine.down": Row("process", ("end",), "failure", "An engine does not answer."),
    "engine.up": Row("process", ("start",), "success", "An engine answers."),
    "tenant.created": Row("iam", ("creation",), "success", "A tenant was created."),
    "tenant.changed": Row("iam", ("change",), "success", "The settings of a tenant changed."),
    "receiver.disabled": Row("configuration", ("change",), "failure", "An event receiver was disabled."),
    "receiver.test": Row("configuration", ("info",), "success", "A test event."),
}
_UNKNOWN = Row("configuration", ("info",), "unknown", "An event of a newer version.")


def ecs_document(event: Event) -> Document:
    """Return the event as one ECS document."""
    row = TABLE.get(event.type, _UNKNOWN)
    moment = event.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    document: Document = {
        "@timestamp": moment,
        "ecs": {"version": VERSION},
        "message": row.message,
        "event": _event_fields(event, row),
        "observer": {"vendor": "Mailwarden", "product": "Mailwarden", "type": "email-security", "version": __version__},
        "mailwarden": {event.type.replace(".", "_").replace("-", "_"): dict(event.data)},
    }
    if event.tenant is not None:
        document["organization"] = {"id": str(event.tenant)}
    if event.type.startswith("message."):
        _add_message(document, event)
    _add_people(document, event)
    return document


def _event_fields(event: Event, row: Row) -> Document:
    verdict = event.data.get("verdict")
    judged = event.type == "message.scanned"
    categories = [row.category, "malware"] if judged and verdict == Verdict.MALWARE else [row.category]
    fields: Document = {
        "id": str(event.id),
        "kind": "alert" if judged and verdict in ALERTS else row.kind,
        "category": categories,
        "type": list(row.types),
        "action": event.type,
        "outcome": row.outcome,
        "module": "mailwarden",
        "dataset": "mailwarden.events",
        "provider": "mailwarden",
    }
    reason = event.data.get("detail") or event.data.get("reason")
    if reason:
        fields["reason"] = str(reason)
    return fields


def _add_message(document: Document, event: Event) -> None:
    data = event.data
    email: Document = {"local_id": str(data.get("ggrid") or event.subject)}
    if data.get("messageId"):
        email["message_id"] = data["messageId"]
    if data.get("subject"):
        email["subject"] = data["subject"]
    for key, field in (("fromAddress", "from"), ("sender", "sender")):
        if data.get(key):
            email[field] = {"address": [data[key]] if field == "from" else data[key]}
    recipients = cast("list[str]", data.get("recipients") or [])
    if recipients:
        email["to"] = {"address": list(recipients)}
    document["email"] = email
    if data.get("tags"):
        document["tags"] = list(cast("list[str]", data["tags"]))
    if data.get("remoteAddress"):
        document["source"] = {"ip": data["remoteAddress"]}
    if data.get("verdict"):
        document["rule"] = {"ruleset": "mailwarden", "category": data["verdict"]}
    if data.get("verdict") == Verdict.PHISHING:
        document["threat"] = _PHISHING
    if data.get("sha256"):
        document["related"] = {"hash": [data["sha256"]]}


def _add_people(document: Document, event: Event) -> None:
    data = event.data
    if event.type in ("user.login", "user.login-failed"):
        user = {"id": data.get("user"), "name": data.get("name")}
        found = {key: value for key, value in user.items() if value}
        if found:
            document["user"] = found
        if data.get("address"):
            document["source"] = {"ip": data["address"]}
            document["related"] = {"ip": [data["address"]]}
    elif data.get("by"):
        document["user"] = {"name": data["by"]}
