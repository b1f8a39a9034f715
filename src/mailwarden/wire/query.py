"""Reading the query of an address strictly: a name that is unknown or stands twice is an error, as in JSON.

Security: reads hostile text. Nothing is guessed: what is no number or moment is refused, not read as something like it.
"""

import re
from collections.abc import Iterable

from msgspec.inspect import IntType, Metadata, StructType, Type, type_info

from mailwarden.wire.strict_json import T, convert, violation_at

_NUMBER = re.compile(r"-?[0-9]{1,9}", re.ASCII)


def read_query(pairs: Iterable[tuple[str, str]], kind: type[T]) -> T:
    """Return the query as a record of `kind`, or raise SchemaViolation with the name that is wrong."""
    numbers = _numbers(kind)
    found: dict[str, object] = {}
    for name, text in pairs:
        if name in found:
            raise violation_at(f"/{name[:64]}", "Stands twice in the query")
        found[name] = int(text) if name in numbers and _NUMBER.fullmatch(text) else text
    return convert(found, kind)


def refuse_query(names: Iterable[str]) -> None:
    """Refuse a query where a call takes none: a `?tenantUid=` that is passed over would mean another scope."""
    for name in names:
        raise violation_at(f"/{name[:64]}", "This call takes no query string; send parameters in the body")


def _numbers(kind: type[T]) -> frozenset[str]:
    """Return the names of the fields that are numbers: a query has nothing but text."""
    described = type_info(kind)
    assert isinstance(described, StructType)
    return frozenset(field.encode_name for field in described.fields if isinstance(_bare(field.type), IntType))


def _bare(kind: Type) -> Type:
    return kind.type if isinstance(kind, Metadata) else kind
