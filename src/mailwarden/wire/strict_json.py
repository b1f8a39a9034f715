"""Parses JSON bodies and URL queries strictly: input that a lenient parser accepts silently is an error with its place.

Security: reads hostile bytes. Duplicate keys and names, NaN, bad UTF-8, NUL and lone surrogates are rejected. Nothing
is guessed: an invalid number or time is rejected, not read as something similar.
"""

import json
import re
from collections.abc import Iterable
from typing import Never, TypeVar, cast

import msgspec
from msgspec.inspect import IntType, Metadata, StructType, Type, type_info

from mailwarden.errors import InvalidJson, InvalidTenantUid, SchemaViolation, plain_problem

T = TypeVar("T")

_PLACE = re.compile(r" - at `\$(.*?)`$", re.DOTALL)
_LIST_NAME = "must be the name of a list: lower-case letters and digits, with single hyphens between them"
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")

_encode = msgspec.json.Encoder().encode
_decoders: dict[type, object] = {}

_NUMBER = re.compile(r"-?[0-9]{1,9}", re.ASCII)


def read_object(raw: bytes) -> dict[str, object]:
    """Return the one JSON object in `raw`, or raise InvalidJson."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJson(f"The JSON is not valid UTF-8 (byte {error.start}).") from None
    if text.startswith("\ufeff"):
        raise InvalidJson("The JSON begins with a byte order mark; send it without.")
    try:
        value = json.loads(text, object_pairs_hook=_object_without_duplicates, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"Not JSON: {error.msg} (line {error.lineno}, column {error.colno}).") from None
    except RecursionError:
        raise InvalidJson("The JSON is nested too deeply.") from None
    except ValueError:  # an integer of thousands of digits
        raise InvalidJson("The JSON has a number with too many digits.") from None
    if not isinstance(value, dict):
        raise InvalidJson("The JSON must be an object.")
    if "\\u" in text:  # only an escape can contain characters that UTF-8 and JSON forbid
        _refuse_hidden_characters(value)
    return value


def convert(value: dict[str, object], kind: type[T]) -> T:
    """Return `value` as a record of `kind`, or raise SchemaViolation with a JSON pointer."""
    try:
        record = msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _violation(str(error)) from None
    return record


def read_plain(raw: bytes, kind: type[T]) -> T | None:
    """Return the record if `read_object` and `convert` would return the same one, or None: then call them.

    It takes a third of their time. `kind` must reject unknown fields and omit defaults. msgspec rejects all that
    `read_object` rejects, except that it accepts equal keys and keeps the last value. Without a backslash every quote
    is at the end of a key or of a string. So `raw` has more quotes than the encoded record if a key occurs twice.
    """
    if b"\\" in raw:
        return None
    try:
        record = _decoder(kind).decode(raw)
    except ValueError:  # an error of msgspec, or bad UTF-8
        return None
    return record if _encode(record).count(b'"') == raw.count(b'"') else None


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    known = _decoders.get(kind)
    if known is None:
        known = _decoders[kind] = msgspec.json.Decoder(kind)
    return cast("msgspec.json.Decoder[T]", known)


def violation_at(pointer: str, problem: str) -> SchemaViolation:
    return SchemaViolation(f"{problem} (at {pointer or '/'})", details=[{"pointer": pointer, "problem": problem}])


def _violation(text: str) -> SchemaViolation | InvalidTenantUid:
    match = _PLACE.search(text)
    pointer = "".join(f"/{name or index}" for name, index in _STEP.findall(match.group(1))) if match else ""
    problem = plain_problem(text)
    if "matching regex" in text:
        problem = _LIST_NAME if pointer == "/listName" else "must not have a control character"
    written = f"{problem[0].upper()}{problem[1:]}"
    if pointer == "/tenantUid":
        return InvalidTenantUid(f"tenantUid {problem}.", details=[{"pointer": pointer, "problem": written}])
    return violation_at(pointer, written)


def _object_without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidJson(f"The key {key[:64]!r} occurs twice in one object.")
        found[key] = value
    return found


def _refuse_hidden_characters(value: object) -> None:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                if "\x00" in text:
                    raise InvalidJson("A string has the NUL character.")
                if any("\ud800" <= character <= "\udfff" for character in text):
                    raise InvalidJson("A string has a lone surrogate.")
            case dict() as members:
                waiting.extend((*members.keys(), *members.values()))
            case list() as items:
                waiting.extend(items)


def _refuse_constant(name: str) -> Never:
    raise InvalidJson(f"{name} is not JSON.")


def read_query(pairs: Iterable[tuple[str, str]], kind: type[T]) -> T:
    """Return the query as a record of `kind`, or raise SchemaViolation with the wrong name."""
    numbers = _numbers(kind)
    found: dict[str, object] = {}
    for name, text in pairs:
        if name in found:
            raise violation_at(f"/{name[:64]}", "Occurs twice in the query")
        found[name] = int(text) if name in numbers and _NUMBER.fullmatch(text) else text
    return convert(found, kind)


def refuse_query(names: Iterable[str]) -> None:
    """Reject a query where a call takes none: ignoring `?tenantUid=` would change the scope."""
    for name in names:
        raise violation_at(f"/{name[:64]}", "This call takes no query string; send parameters in the body")


def _numbers(kind: type[T]) -> frozenset[str]:
    """Return the names of the fields that are numbers: a query has only text."""
    described = type_info(kind)
    assert isinstance(described, StructType)
    return frozenset(field.encode_name for field in described.fields if isinstance(_bare(field.type), IntType))


def _bare(kind: Type) -> Type:
    return kind.type if isinstance(kind, Metadata) else kind
