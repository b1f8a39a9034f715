"""Reads STIX 2.1: bundles and TAXII 2.1 envelopes with indicators.

A pattern is read where it is equality comparisons joined by OR, on the objects below. Any other pattern (AND, NOT,
FOLLOWEDBY, qualifiers, LIKE, MATCHES, IN, other objects) is counted as unsupported as a whole: a part of it could mean
something else.

Security: reads JSON and patterns of third parties. The tokens of a pattern are found in one linear pass.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

from mailwarden.feeds.indicators import (
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
from mailwarden.feeds.text_formats import read_json, read_time

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


def read_stix(data: bytes, now: datetime, limits: FeedLimits, skipped: Skipped) -> Iterator[Indicator]:
    """Yield the indicators of one bundle or envelope."""
    yield from read_objects(objects_of(data), now, limits, skipped)


def objects_of(data: bytes) -> Sequence[Object]:
    """Return the objects of a bundle or of an envelope of TAXII."""
    document = read_json(data)
    if not isinstance(document, dict):
        raise reject("the document is no JSON object: this is not STIX")
    if "type" in document and document["type"] != "bundle":
        raise reject(f"the type is `{cut(str(document['type']), 40)}`, not `bundle`")
    found = document.get("objects", [])  # an empty envelope has none
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise reject("`objects` is no array of objects: this is not STIX")
    return cast("Sequence[Object]", found)


def read_objects(objects: Sequence[Object], now: datetime, limits: FeedLimits, skipped: Skipped) -> Iterator[Indicator]:
    """Yield the indicators among the objects; of several versions of one object the newest counts."""
    newest: dict[str, tuple[datetime, Object]] = {}
    for each in objects:
        if each.get("type") != "indicator":
            skipped.add("object that is no indicator")
            continue
        name = each.get("id")
        if not isinstance(name, str):
            raise reject("an indicator has no id")
        modified = _time(each, "modified", cut(name)) or datetime.min.replace(tzinfo=UTC)
        if name not in newest or newest[name][0] <= modified:
            newest[name] = modified, each
        if len(newest) > limits.max_entries:
            raise reject(f"the feed has more than {limits.max_entries:,} indicators")
    for name, (_, each) in newest.items():
        yield from _indicators(cut(name), each, now, skipped)


def _indicators(name: str, each: Object, now: datetime, skipped: Skipped) -> Iterator[Indicator]:
    until = _time(each, "valid_until", name)
    begin = _time(each, "valid_from", name)
    if each.get("revoked") is True:
        skipped.add("revoked indicator")
    elif begin is not None and begin > now:
        skipped.add("indicator that is not valid yet")
    elif until is not None and until <= now:
        skipped.add("expired indicator")
    elif each.get("pattern_type", "stix") != "stix":
        skipped.add(f"unsupported pattern type {cut(str(each.get('pattern_type')), 40)}")
    else:
        confidence = each.get("confidence")
        level = UNKNOWN_CONFIDENCE if confidence is None else confidence_of(confidence, name)
        labels = [label for key in ("indicator_types", "labels") for label in _array(each, key)]
        tags = tuple(cut(label, MAX_TAG) for label in labels if isinstance(label, str))[:MAX_TAGS]
        try:
            compared = read_pattern(each.get("pattern"))
        except _Unsupported:
            skipped.add("unsupported pattern")
            return
        for kind, value in compared:
            yield Indicator(kind, value, level, until, tags, name)


def read_pattern(pattern: object) -> list[tuple[IndicatorKind, str]]:
    """Return what a pattern compares, all joined by OR, or raise _Unsupported."""
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
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
