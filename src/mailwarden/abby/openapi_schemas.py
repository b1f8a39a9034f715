"""The schemas of the OpenAPI description: the wire records, with closed sets and maps under names of their own."""

from collections.abc import Mapping, Sequence

import msgspec

from mailwarden.lists.catalogue import CATALOGUE
from mailwarden.lists.requests import MAX_ENTRIES
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.user_reports.requests import ReportKind
from mailwarden.wire.scanning import RECIPIENT, SENDER

Schema = dict[str, object]

_MAPS: Mapping[str, Schema] = {
    "Counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    "Texts": {"type": "object", "additionalProperties": {"type": "string"}},
}
REFERENCE = "#/components/schemas/{name}"
# Closed sets whose fields are plain strings in the records.
_CLOSED_SETS: Mapping[str, Sequence[str]] = {
    "ListName": [definition.name for definition in CATALOGUE],
    "StatusColour": ["GREEN", "YELLOW", "RED"],
    "ReportedKind": ["released", *ReportKind],
    "ReportState": ["waiting", "trained", "rejected", "not-stored"],
    "Decision": list(Decision),
    "Verdict": list(Verdict),
}
_DECISION = "The decision: the action for the message."
_VERDICT = "The verdict: the classification of the message."
# The record, the field, its closed set, and the sentence about it.
_FIELDS: Sequence[tuple[str, str, str, str]] = (
    ("MessageAnalysisResult", "decision", "Decision", _DECISION),
    ("MessageAnalysisResult", "verdict", "Verdict", _VERDICT),
    ("MessageExplanation", "decision", "Decision", _DECISION),
    ("MessageExplanation", "verdict", "Verdict", _VERDICT),
    ("AddEntries", "listName", "ListName", "Name of the list."),
    ("DeleteEntries", "listName", "ListName", "Name of the list."),
    ("ListEntries", "listName", "ListName", "Name of the list."),
    ("SystemStatus", "messageQueueStatus", "StatusColour", "The colour of the deployment."),
    ("Report", "kind", "ReportedKind", "Kind of the report; only the quarantine uses `released`."),
    ("Report", "state", "ReportState", "`rejected` has too little text, or GTUBE; `not-stored` has no bytes."),
    ("HeldRecipient", "state", "HeldState", "`releasing` waits for a guard; `released` was accepted by the next hop."),
)
_ADDRESS: Schema = {
    # Types come before formats, which do not cover null: generators would reject null as an IPv4 address.
    "type": ["string", "null"],
    "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}],
    "description": "IPv4 or IPv6 address of the sending MTA, as seen at the border MTA.",
    "default": None,
}
_TAG: Schema = {"type": "string", "pattern": r"^[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*$"}


def schemas_of(records: Sequence[type]) -> dict[str, Schema]:
    """Return the schemas of the records, with constraints that types cannot express.

    Every closed set has a name of its own: a generator makes one type of it, and not one for each field.
    """
    _, schemas = msgspec.json.schema_components(records, ref_template=REFERENCE, schema_hook=_any)
    text = msgspec.json.encode(schemas).replace(b"schemas/ErrorBody", b"schemas/Error")
    fixed = {name: _readable(schema) for name, schema in msgspec.json.decode(text, type=dict[str, Schema]).items()}
    fixed["Error"] = fixed.pop("ErrorBody") | {"title": "Error"}
    details = _properties(fixed["Error"])["details"]
    assert isinstance(details, dict)
    fixed["ErrorDetail"] = {"title": "ErrorDetail", "description": "One mistake and its place.", **details["items"]}
    details["items"] = reference("ErrorDetail")
    fixed |= {name: {"title": name, "description": f"{name} by name.", **schema} for name, schema in _MAPS.items()}
    for name, values in _CLOSED_SETS.items():
        fixed[name] = {"title": name, "type": "string", "enum": list(values)}
    for record, name, closed, sentence in _FIELDS:
        _properties(fixed[record])[name] = {**reference(closed), "description": sentence}
    for name in ("MessageAnalysisResult", "MessageExplanation"):
        tags = {"type": "array", "items": _TAG, "description": "All tags of the message, sorted."}
        _properties(fixed[name])["tags"] = tags
    for name in ("AddEntries", "DeleteEntries"):
        entries = _properties(fixed[name])["entries"]
        assert isinstance(entries, dict)
        entries["maxItems"] = MAX_ENTRIES
    border = _properties(fixed["BorderMtaData"])
    border["remoteAddress"] = _ADDRESS
    sender, recipients = border["envelopeFrom"], border["envelopeRecipients"]
    assert isinstance(sender, dict)
    assert isinstance(recipients, dict)
    sender["allOf"] = [{"pattern": SENDER}]
    recipients["items"] = {**recipients["items"], "allOf": [{"pattern": RECIPIENT}]}
    return fixed


def reference(name: str) -> Schema:
    return {"$ref": REFERENCE.format(name=name)}


def _readable(schema: Schema) -> Schema:
    """Rewrite Python patterns for other schema readers, and name the maps.

    `\\Z` is Python only; in a schema `$` means the same. Patterns go into an allOf, because some request generators
    misread a pattern beside a type.
    """
    for name, named_properties in _MAPS.items():
        if named_properties.items() <= schema.items():
            return {**reference(name), **{key: value for key, value in schema.items() if key not in named_properties}}
    changed: Schema = {}
    for key, value in schema.items():
        if key == "pattern" and isinstance(value, str):
            changed["allOf"] = [{"pattern": value.removesuffix(r"\Z") + "$"}]
        elif isinstance(value, dict):
            changed[key] = _readable(value)
        elif isinstance(value, list):
            changed[key] = [_readable(item) if isinstance(item, dict) else item for item in value]
        else:
            changed[key] = value
    return changed


def _any(kind: type) -> Schema:
    return {"description": "Any value."}


def _properties(schema: Schema) -> Schema:
    properties = schema["properties"]
    assert isinstance(properties, dict)
    return properties
