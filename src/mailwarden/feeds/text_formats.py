"""Reads plain text, CSV and NDJSON feeds.

Security: reads bytes of third parties. A line, the nesting and the number of entries are bounded; input that cannot be
read to its end rejects the whole update, so that a half-read feed never counts as complete.
"""

import csv
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from io import BytesIO

import msgspec
from msgspec import Struct

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

_BOM = b"\xef\xbb\xbf"
COMMENTS = ("#", ";", "//", "!")
_HOSTS_FILE = ("0.0.0.0 ", "127.0.0.1 ", "0.0.0.0\t", "127.0.0.1\t")
_KINDS: Mapping[str, IndicatorKind] = {
    "domain": IndicatorKind.DOMAIN, "hostname": IndicatorKind.DOMAIN, "host": IndicatorKind.DOMAIN,
    "fqdn": IndicatorKind.DOMAIN, "url": IndicatorKind.URL, "uri": IndicatorKind.URL, "ip": IndicatorKind.IP,
    "ipv4": IndicatorKind.IP, "ipv6": IndicatorKind.IP, "cidr": IndicatorKind.IP, "email": IndicatorKind.EMAIL,
    "sender": IndicatorKind.EMAIL, "hash": IndicatorKind.HASH, "md5": IndicatorKind.HASH, "sha1": IndicatorKind.HASH,
    "sha256": IndicatorKind.HASH,
}  # fmt: skip


class FieldMapping(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which column (name, or number from 1) or field of CSV and NDJSON has what; empty: the feed has none."""

    value: str = ""
    kind: str = ""
    confidence: str = ""
    valid_until: str = ""
    tags: str = ""
    reference: str = ""
    delimiter: str = ","


def lines_of(data: bytes, limits: FeedLimits) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; a line that is too long rejects the update."""
    for number, line in enumerate(_raw_lines(data, limits), 1):
        yield number, line.strip()


def _raw_lines(data: bytes, limits: FeedLimits) -> Iterator[str]:
    """Yield the lines with their ends, one at a time: the text as a whole would take four times its bytes."""
    file, number = BytesIO(data.removeprefix(_BOM)), 0
    while line := file.readline(4 * limits.max_line + 2):  # of at most four bytes a character
        number += 1
        text = _decode(line, number)
        if len(text) > limits.max_line:
            raise reject(f"the line has more than {limits.max_line:,} characters", f"Line {number}")
        yield text


def _decode(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise reject(f"byte {error.start + 1:,} of the line is not UTF-8", f"Line {number}") from None


def read_plain(data: bytes, limits: FeedLimits) -> Iterator[Indicator]:
    """Yield one value a line, defanged or not; a comment begins a line, or follows a value after white space."""
    for number, line in lines_of(data, limits):
        if not line or line.startswith(COMMENTS):
            continue
        value = line.removeprefix(next((each for each in _HOSTS_FILE if line.startswith(each)), ""))
        for mark in (" #", "\t#", " ;", "\t;"):
            value = value.partition(mark)[0]
        yield Indicator(IndicatorKind.ANY, value.strip(), reference=f"line {number}")


def read_csv(data: bytes, mapping: FieldMapping, limits: FeedLimits, skipped: Skipped) -> Iterator[Indicator]:
    """Yield the rows; the first row that is no comment has the names, unless the columns are given by number."""
    lines = _RowLines(data, limits)
    rows = csv.reader(lines, delimiter=mapping.delimiter, strict=True)
    columns: Mapping[str, int] | None = None
    if all(each.isdigit() for each in _wanted(mapping).values()):
        columns = {name: int(number) - 1 for name, number in _wanted(mapping).items()}
    try:
        for cells in rows:
            lines.begin_row()
            if not any(cell.strip() for cell in cells):
                continue
            where = f"Line {rows.line_num}"
            if columns is None:
                columns = _columns_of(cells, mapping)
                continue
            if max(columns.values()) >= len(cells):
                raise reject(f"{len(cells)} columns; the mapping needs {max(columns.values()) + 1}", where)
            fields = {name: cells[at].strip() for name, at in columns.items()}
            if found := _indicator(fields, f"line {rows.line_num}", where, skipped):
                yield found
    except csv.Error as error:
        raise reject(f"not CSV: {error}", f"Line {rows.line_num}") from None
    if columns is None:
        raise reject(f"the file has no row of names; the mapping needs the column `{mapping.value or 'value'}`")


def read_ndjson(data: bytes, mapping: FieldMapping, limits: FeedLimits, skipped: Skipped) -> Iterator[Indicator]:
    """Yield one JSON object a line; a mapped field may be inside others: `ioc.value`."""
    wanted = _wanted(mapping)
    for number, line in lines_of(data, limits):
        if not line:
            continue
        where = f"Line {number}"
        document = read_json(line.encode(), where)
        if not isinstance(document, dict):
            raise reject("not a JSON object", where)
        fields = {name: _text(_at(document, path), where) for name, path in wanted.items()}
        if found := _indicator(fields, f"line {number}", where, skipped):
            yield found


def read_json(data: bytes, where: str = "") -> object:
    """Return a JSON document, or reject the update; the decoder bounds the nesting."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise reject(f"not JSON: {error}", where) from None
    except RecursionError:
        raise reject("the JSON is nested too deep", where) from None


def read_time(text: str, where: str) -> datetime:
    """Return a time in UTC; a time without a zone is in UTC, a number is in seconds since 1970."""
    try:
        if text.isdigit():
            return datetime.fromtimestamp(int(text), UTC)
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise reject(f"`{cut(text, 40)}` is no time such as 2027-01-31T12:00:00Z", where) from None


class _RowLines:
    """The lines of a CSV file without comments; a row of several lines is as long as a line at most."""

    def __init__(self, data: bytes, limits: FeedLimits) -> None:
        self._lines = _raw_lines(data, limits)
        self._max = limits.max_line
        self._row = 0

    def begin_row(self) -> None:
        self._row = 0

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._lines, 1):
            self._row += len(line)
            if self._row > self._max:
                raise reject(f"the row has more than {self._max:,} characters", f"Line {number}")
            yield "\n" if line.startswith("#") else line


def _wanted(mapping: FieldMapping) -> dict[str, str]:
    named = {
        "value": mapping.value or "value", "kind": mapping.kind, "confidence": mapping.confidence,
        "valid_until": mapping.valid_until, "tags": mapping.tags, "reference": mapping.reference,
    }  # fmt: skip
    return {name: where for name, where in named.items() if where}


def _columns_of(cells: list[str], mapping: FieldMapping) -> Mapping[str, int]:
    names = [cell.strip().lower() for cell in cells]
    columns = {}
    for name, wanted in _wanted(mapping).items():
        if wanted.lower() not in names:
            raise reject(f"no column is named `{wanted}`; the columns are {cut(', '.join(names))}")
        columns[name] = names.index(wanted.lower())
    return columns


def _indicator(fields: Mapping[str, str], reference: str, where: str, skipped: Skipped) -> Indicator | None:
    if not fields["value"]:
        raise reject("the value is empty", where)
    kind = IndicatorKind.ANY
    if stated := fields.get("kind", "").lower():
        kind = _KINDS.get(stated, IndicatorKind.ANY)
        if kind is IndicatorKind.ANY and stated != "any":
            skipped.add(f"unsupported kind {cut(stated, 40)}")
            return None
    until, confidence = fields.get("valid_until", ""), fields.get("confidence", "")
    tags = (cut(each.strip(), MAX_TAG) for each in fields.get("tags", "").replace(";", ",").split(","))
    return Indicator(
        kind,
        fields["value"],
        confidence_of(confidence, where) if confidence else UNKNOWN_CONFIDENCE,
        read_time(until, where) if until else None,
        tuple(filter(None, tags))[:MAX_TAGS],
        cut(fields.get("reference", "") or reference),
    )


def _at(document: object, path: str) -> object:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _text(value: object, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    if isinstance(value, bool | dict | list):
        raise reject("a mapped field is no text and no number", where)
    return str(value).strip()
