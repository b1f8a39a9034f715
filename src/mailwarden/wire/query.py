"""Reads the query of a URL strictly: an unknown or repeated name is an error, as in JSON.

Security: reads hostile text. Nothing is guessed: an invalid number or time is rejected, not read as something similar.
"""

import re
from collections.abc import Iterable

from msgspec.inspect import IntType, Metadata, StructType, Type, type_info

from mailwarden.wire.strict_json import T, convert, violation_at

_NUMBER = re.compile(r"-?[0-9]{1,9}", re.ASCII)


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
