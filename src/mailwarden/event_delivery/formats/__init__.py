"""The formats of events: native, OCSF and ECS. Each type has one row in the table of each format."""

from collections.abc import Callable, Mapping

from mailwarden.event_delivery.formats.ecs import ecs_document
from mailwarden.event_delivery.formats.ocsf import ocsf_document
from mailwarden.event_delivery.model import Format
from mailwarden.events.catalogue import VERSION, Event
from mailwarden.model.outcome import Verdict

NOTICE, WARNING, INFORMATIONAL = 5, 4, 6  # severities of RFC 5424
_WARNINGS = frozenset({"user.login-failed", "engine.down", "receiver.disabled"})
_DANGEROUS = frozenset({Verdict.MALWARE, Verdict.PHISHING, Verdict.FRAUD, Verdict.SPOOF})


def native_document(event: Event) -> Mapping[str, object]:
    """Return the event as `GET /v1/events` does."""
    return {
        "id": str(event.id),
        "type": event.type,
        "version": VERSION,
        "time": event.time.isoformat().replace("+00:00", "Z"),
        "tenantUid": None if event.tenant is None else str(event.tenant),
        "subject": event.subject,
        "data": event.data,
    }


_FORMATS: Mapping[Format, Callable[[Event], Mapping[str, object]]] = {
    Format.NATIVE: native_document,
    Format.OCSF: ocsf_document,
    Format.ECS: ecs_document,
}


def document_of(wanted: Format, event: Event) -> Mapping[str, object]:
    """Return the event in a format, as values of JSON."""
    return _FORMATS[wanted](event)


def severity_of(event: Event) -> int:
    """Return the syslog severity of an event."""
    if event.type in _WARNINGS:
        return WARNING
    return NOTICE if event.data.get("verdict") in _DANGEROUS else INFORMATIONAL
