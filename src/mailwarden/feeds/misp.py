"""Reads MISP: an event, a search result, and the manifest of a MISP feed.

Only attributes that MISP marks for detection (`to_ids`) and that are not deleted become indicators.

Security: reads JSON of third parties; a document of another shape rejects the whole update.
"""

from collections.abc import Iterator, Mapping
from typing import cast
from uuid import UUID

from mailwarden.feeds.indicators import (
    MAX_TAG,
    MAX_TAGS,
    UNKNOWN_CONFIDENCE,
    Indicator,
    IndicatorKind,
    Skipped,
    cut,
    reject,
)
from mailwarden.feeds.text_formats import read_json

MAX_EVENTS = 5_000  # of one manifest
_KINDS: Mapping[str, IndicatorKind] = {
    "domain": IndicatorKind.DOMAIN, "hostname": IndicatorKind.DOMAIN, "url": IndicatorKind.URL,
    "ip-src": IndicatorKind.IP, "ip-dst": IndicatorKind.IP, "email-src": IndicatorKind.EMAIL,
    "md5": IndicatorKind.HASH, "sha1": IndicatorKind.HASH, "sha256": IndicatorKind.HASH,
}  # fmt: skip
# The taxonomy misp:confidence-level.
_CONFIDENCE = {
    'misp:confidence-level="completely-confident"': 100, 'misp:confidence-level="usually-confident"': 75,
    'misp:confidence-level="fairly-confident"': 50, 'misp:confidence-level="rarely-confident"': 25,
    'misp:confidence-level="unconfident"': 0,
}  # fmt: skip
Object = Mapping[str, object]


def is_manifest(document: object) -> bool:
    """Return whether the document is the manifest of a MISP feed: events by their UUID."""
    return isinstance(document, dict) and bool(document) and all(map(_is_uuid, document))


def events_of(document: object) -> list[str]:
    """Return the UUIDs of the events of a manifest."""
    names = sorted(_object(document, "The manifest"))
    if len(names) > MAX_EVENTS:
        raise reject(f"the manifest has {len(names):,} events; at most {MAX_EVENTS:,} are read")
    return names


def read_misp(data: bytes, skipped: Skipped) -> Iterator[Indicator]:
    """Yield the indicators of an event, of several events, or of a search for attributes."""
    document = _object(read_json(data), "The document")
    response = document.get("response", document)
    if isinstance(response, dict) and "Attribute" in response and "Event" not in response:
        yield from _attributes(_array(response, "Attribute"), (), "", skipped)
        return
    for each in response if isinstance(response, list) else [response]:
        event = _object(_object(each, "An event").get("Event"), "`Event`")
        tags = _tags(event)
        reference = cut(str(event.get("uuid", "")))
        yield from _attributes(_array(event, "Attribute"), tags, reference, skipped)
        for thing in _array(event, "Object"):
            yield from _attributes(_array(_object(thing, "`Object`"), "Attribute"), tags, reference, skipped)


def _attributes(attributes: list[object], tags: tuple[str, ...], event: str, skipped: Skipped) -> Iterator[Indicator]:
    for each in attributes:
        attribute = _object(each, "`Attribute`")
        name, value = attribute.get("type"), attribute.get("value")
        if not isinstance(name, str) or not isinstance(value, str):
            raise reject("an attribute has no type or no value", event)
        if attribute.get("deleted") in (True, 1, "1"):
            skipped.add("deleted attribute")
        elif attribute.get("to_ids") not in (True, 1, "1"):
            skipped.add("attribute not for detection (to_ids)")
        elif name not in _KINDS:
            skipped.add(f"unsupported attribute {cut(name, 40)}")
        else:
            own = (*_tags(attribute), *tags)[:MAX_TAGS]
            level = next((_CONFIDENCE[tag] for tag in own if tag in _CONFIDENCE), UNKNOWN_CONFIDENCE)
            reference = cut(str(attribute.get("uuid", "")) or event)
            yield Indicator(_KINDS[name], value, level, tags=own, reference=reference)


def _tags(holder: Object) -> tuple[str, ...]:
    names = (_object(tag, "`Tag`").get("name") for tag in _array(holder, "Tag"))
    return tuple(cut(name, MAX_TAG) for name in names if isinstance(name, str))[:MAX_TAGS]


def _object(value: object, what: str) -> Object:
    if not isinstance(value, dict):
        raise reject(f"{what} is missing or no JSON object: this is not MISP")
    return cast("Object", value)


def _array(holder: Object, name: str) -> list[object]:
    found = holder.get(name, [])
    if not isinstance(found, list):
        raise reject(f"`{name}` is no array: this is not MISP")
    return found


def _is_uuid(text: object) -> bool:
    try:
        return isinstance(text, str) and str(UUID(text)) == text.lower()
    except ValueError:
        return False
