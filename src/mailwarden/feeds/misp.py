"""Reads MISP: an event, a search result, and the manifest of a MISP feed.

Only attributes that MISP marks for detection (`to_ids`) and that are not deleted become indicators.

Security: reads JSON of third parties; a document of another shape rejects the whole update.
"""

from collections.abc import Iterator, Mapping
from typing import cast
from uuid import UUID

from mailwarden.errors import FeedRejected
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
from mailwarden.feeds.json_stream import JsonReader

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


def manifest_events(data: bytes) -> list[str] | None:
    """Return the UUIDs of the events of a manifest, or None if the document is something else."""
    reader, names = JsonReader(data), list[str]()
    if reader.peek() != "{":
        return None
    for key in reader.fields():
        if not _is_uuid(key):
            return None
        names.append(key)
        if len(names) > MAX_EVENTS:
            raise reject(f"the manifest has more than {MAX_EVENTS:,} events")
        reader.skip()
    reader.end()
    return sorted(set(names)) or None


def read_misp(data: bytes, skipped: Skipped) -> Iterator[Indicator]:
    """Yield the indicators of an event, of several events, or of a search for attributes."""
    reader, known = JsonReader(data), False
    for key in _keys(reader, "The document"):
        if key == "response":
            known = True
            several = reader.peek() == "["
            for _ in reader.items() if several else (None,):
                yield from _result(reader, skipped)
        elif key in ("Event", "Attribute"):
            known = True
            yield from _member(reader, key, skipped)
        else:
            reader.skip()
    reader.end()
    if not known:
        raise _not_misp("`Event`")


def _result(reader: JsonReader, skipped: Skipped) -> Iterator[Indicator]:
    """Yield the indicators of one result of a search."""
    known = False
    for key in _keys(reader, "An event"):
        if key in ("Event", "Attribute"):
            known = True
            yield from _member(reader, key, skipped)
        else:
            reader.skip()
    if not known:
        raise _not_misp("`Event`")


def _member(reader: JsonReader, key: str, skipped: Skipped) -> Iterator[Indicator]:
    if key == "Attribute":
        yield from _attributes(reader, (), "", skipped)
    else:
        yield from _event(reader, skipped)


def _event(reader: JsonReader, skipped: Skipped) -> Iterator[Indicator]:
    """Yield the indicators of an event; it is read twice, because its tags may follow its attributes."""
    mark, about = reader.mark(), dict[str, object]()
    for key in _keys(reader, "`Event`"):
        if key in ("Tag", "uuid"):
            about[key] = reader.value()
        else:
            reader.skip()
    tags, reference = _tags(about), cut(str(about.get("uuid", "")))
    reader.seek(mark)
    for key in reader.fields():
        if key == "Attribute":
            yield from _attributes(reader, tags, reference, skipped)
        elif key == "Object":
            for _ in _items(reader, "Object"):
                yield from _object_attributes(reader, tags, reference, skipped)
        else:
            reader.skip()


def _object_attributes(reader: JsonReader, tags: tuple[str, ...], event: str, skipped: Skipped) -> Iterator[Indicator]:
    for key in _keys(reader, "`Object`"):
        if key == "Attribute":
            yield from _attributes(reader, tags, event, skipped)
        else:
            reader.skip()


def _attributes(reader: JsonReader, tags: tuple[str, ...], event: str, skipped: Skipped) -> Iterator[Indicator]:
    for _ in _items(reader, "Attribute"):
        attribute = _object(reader.value(), "`Attribute`")
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


def _keys(reader: JsonReader, what: str) -> Iterator[str]:
    if reader.peek() != "{":
        raise _not_misp(what)
    return reader.fields()


def _items(reader: JsonReader, name: str) -> Iterator[None]:
    if reader.peek() != "[":
        raise reject(f"`{name}` is no array: this is not MISP")
    return reader.items()


def _not_misp(what: str) -> FeedRejected:
    return reject(f"{what} is missing or no JSON object: this is not MISP")


def _object(value: object, what: str) -> Object:
    if not isinstance(value, dict):
        raise _not_misp(what)
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
