"""Reads STIX 2.1: bundles and TAXII 2.1 envelopes with indicators.

A pattern is read where it is equality comparisons joined by OR, on the objects below. Any other pattern (AND, NOT,
FOLLOWEDBY, qualifiers, LIKE, MATCHES, IN, other objects) is counted as unsupported as a whole: a part of it could mean
something else.

Security: reads JSON and patterns of third parties. The tokens of a pattern are found in one linear pass.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from mailwarden.feeds.indicators import (
    MAX_REFERENCE,
    MAX_TAG,
    MAX_TAGS,
    UNKNOWN_CONFIDENCE,
    FeedLimits,
    Indicator,
    IndicatorKind,
    Skipped,
    confidence_of,
    cut,
    reject,
)
from mailwarden.feeds.json_stream import JsonReader
from mailwarden.feeds.text_formats import read_time

MAX_PATTERN = 20_000
MAX_COMPARISONS = 500
_PATHS: Mapping[str, IndicatorKind] = {
    "domain-name:value": IndicatorKind.DOMAIN, "url:value": IndicatorKind.URL, "ipv4-addr:value": IndicatorKind.IP,
    "ipv6-addr:value": IndicatorKind.IP, "email-addr:value": IndicatorKind.EMAIL,
    "file:hashes.'MD5'": IndicatorKind.HASH, "file:hashes.MD5": IndicatorKind.HASH,
    "file:hashes.'SHA-1'": IndicatorKind.HASH, "file:hashes.'SHA-256'": IndicatorKind.HASH,
}  # fmt: skip
_TOKEN = re.compile(
    r"""\s+|(?P<path>[a-z][a-z0-9-]{1,250}:[A-Za-z0-9_.'-]{1,250}?)(?=[\s=!<>])|(?P<text>'(?:[^'\\]|\\['\\])*')"""
    r"""|(?P<mark>=|\[|\])|(?P<word>[A-Za-z]+)"""
)

Object = Mapping[str, object]


class _Unsupported(Exception):
    """The pattern is valid STIX perhaps, but more than equality joined by OR."""


class _Version(Struct, frozen=True, gc=False):
    """The parts of an indicator that count; the texts as bytes, which are never wider than the document."""

    modified: datetime
    begin: datetime | None
    until: datetime | None
    revoked: bool
    pattern_type: bytes
    pattern: bytes
    tags: bytes
    confidence: int


def objects_of(data: bytes) -> Iterator[Object]:
    """Yield the objects of a bundle or of an envelope of TAXII, which may be empty."""
    reader = JsonReader(data)
    if reader.peek() != "{":
        raise reject("the document is no JSON object: this is not STIX")
    for key in reader.fields():
        if key == "type":
            name = reader.value()
            if name != "bundle":
                raise reject(f"the type is `{cut(str(name), 40)}`, not `bundle`")
        elif key == "objects":
            yield from _objects(reader)
        else:
            reader.skip()
    reader.end()


def _objects(reader: JsonReader) -> Iterator[Object]:
    mistake = reject("`objects` is no array of objects: this is not STIX")
    if reader.peek() != "[":
        raise mistake
    for _ in reader.items():
        each = reader.value()
        if not isinstance(each, dict):
            raise mistake
        yield each


def read_objects(objects: Iterable[Object], now: datetime, limits: FeedLimits, skipped: Skipped) -> Iterator[Indicator]:
    """Yield the indicators among the objects; of several versions of one object the newest counts."""
    newest: dict[str, _Version] = {}
    for each in objects:
        if each.get("type") != "indicator":
            skipped.add("object that is no indicator")
            continue
        name = each.get("id")
        if not isinstance(name, str) or len(name) > MAX_REFERENCE:
            raise reject(f"an indicator has no id, or one of more than {MAX_REFERENCE} characters")
        version = _version(cut(name), each)
        if name not in newest or newest[name].modified <= version.modified:
            newest[name] = version
        if len(newest) > limits.max_entries:
            raise reject(f"the feed has more than {limits.max_entries:,} indicators")
    for name, version in newest.items():
        yield from _indicators(cut(name), version, now, skipped)


def _version(name: str, each: Object) -> _Version:
    confidence, pattern = each.get("confidence"), each.get("pattern")
    labels = [label for key in ("indicator_types", "labels") for label in _array(each, key)]
    tags = [cut(label, MAX_TAG) for label in labels if isinstance(label, str)][:MAX_TAGS]
    return _Version(
        _time(each, "modified", name) or datetime.min.replace(tzinfo=UTC),
        _time(each, "valid_from", name),
        _time(each, "valid_until", name),
        each.get("revoked") is True,
        cut(str(each.get("pattern_type", "stix")), 40).encode(),
        pattern.encode() if isinstance(pattern, str) and len(pattern) <= MAX_PATTERN else b"",
        "\n".join(tags).encode(),
        UNKNOWN_CONFIDENCE if confidence is None else confidence_of(confidence, name),
    )


def _indicators(name: str, each: _Version, now: datetime, skipped: Skipped) -> Iterator[Indicator]:
    if each.revoked:
        skipped.add("revoked indicator")
    elif each.begin is not None and each.begin > now:
        skipped.add("indicator that is not valid yet")
    elif each.until is not None and each.until <= now:
        skipped.add("expired indicator")
    elif each.pattern_type != b"stix":
        skipped.add(f"unsupported pattern type {each.pattern_type.decode()}")
    else:
        try:
            compared = read_pattern(each.pattern.decode())
        except _Unsupported:
            skipped.add("unsupported pattern")
            return
        tags = tuple(filter(None, each.tags.decode().split("\n")))
        for kind, value in compared:
            yield Indicator(kind, value, each.confidence, each.until, tags, name)


def read_pattern(pattern: str) -> list[tuple[IndicatorKind, str]]:
    """Return what a pattern compares, all joined by OR, or raise _Unsupported."""
    if len(pattern) > MAX_PATTERN:
        raise _Unsupported
    tokens = list(_tokens(pattern))
    compared: list[tuple[IndicatorKind, str]] = []
    at = 0
    while True:
        at = _expect(tokens, at, "[")
        while True:
            kind, path = tokens[at] if at < len(tokens) else ("", "")
            if kind != "path" or path not in _PATHS or len(compared) >= MAX_COMPARISONS:
                raise _Unsupported
            at = _expect(tokens, at + 1, "=")
            kind, text = tokens[at] if at < len(tokens) else ("", "")
            if kind != "text":
                raise _Unsupported
            compared.append((_PATHS[path], re.sub(r"\\(['\\])", r"\1", text[1:-1])))
            at += 1
            if at < len(tokens) and tokens[at] == ("word", "OR"):
                at += 1
                continue
            break
        at = _expect(tokens, at, "]")
        if at == len(tokens):
            return compared
        if tokens[at] != ("word", "OR"):
            raise _Unsupported
        at += 1


def _tokens(pattern: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None:
            raise _Unsupported
        if match.lastgroup is not None:
            yield match.lastgroup, match[match.lastgroup]
        at = match.end()


def _expect(tokens: Sequence[tuple[str, str]], at: int, mark: str) -> int:
    if at >= len(tokens) or tokens[at] != ("mark", mark):
        raise _Unsupported
    return at + 1


def _time(each: Object, key: str, name: str) -> datetime | None:
    value = each.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise reject(f"`{key}` is no time", name)
    return read_time(value, name)


def _array(each: Object, key: str) -> list[object]:
    found = each.get(key, [])
    return found if isinstance(found, list) else []
