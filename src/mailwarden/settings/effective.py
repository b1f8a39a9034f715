"""The effective configuration: every key with its value and the source of the value, without secrets."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from mailwarden.settings.document import load
from mailwarden.settings.reader import TYPE

DEFAULT = "default"
MASK = "••••••••"
_SECRET = re.compile(r"(token|secret|password)$", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)([^/@:\s]*):[^@/\s]*@")


class Setting(Struct, frozen=True):
    """One key: `source` is the file and line that sets it, or `default`."""

    key: str
    value: str
    source: str


def effective(path: Path, record: Struct, shown: str = "") -> Sequence[Setting]:
    """Return every setting of a record that was read from the file; `shown` is the file's name for people."""
    return list(_settings(record, load(path), "", shown or path.name, 0))


def _settings(record: Struct, node: object, prefix: str, file: str, line: int) -> Iterator[Setting]:
    for field in msgspec.structs.fields(type(record)):
        key = f"{prefix}{field.encode_name}"
        yield from _value(key, getattr(record, field.name), *_child(node, field.encode_name, line), file)


def _value(key: str, value: object, node: object, line: int, file: str) -> Iterator[Setting]:
    if isinstance(value, Struct) and msgspec.structs.fields(type(value)):
        yield from _settings(value, node, f"{key}.", file, line)
    elif isinstance(value, tuple) and any(isinstance(item, Struct) for item in value):
        for number, item in enumerate(value):
            yield from _value(f"{key}[{number}]", item, *_child(node, number, line), file)
    elif isinstance(value, Mapping) and any(isinstance(item, Struct) for item in value.values()):
        for name, item in value.items():
            inner, at = _child(node, name, line)
            if (named := _child(inner, TYPE, at))[0] is not None:
                yield from _value(f"{key}.{name}.{TYPE}", named[0], *named, file)
            yield from _value(f"{key}.{name}", item, inner, at, file)
    else:
        yield Setting(key, _shown(key, value), f"{file}:{line}" if node is not None and line else DEFAULT)


def _child(node: object, name: object, line: int) -> tuple[object, int]:
    """Return the value of a name in the document and its line; None if it is not set."""
    try:
        inner = node[name]  # type: ignore[index]  # a mapping or a list of the document, or nothing of the kind
    except (KeyError, IndexError, TypeError):
        return None, line
    marks = getattr(node, "lc", None)
    try:
        return inner, int(marks.data[name][0]) + 1 if marks else line
    except (KeyError, IndexError, TypeError, AttributeError):
        return inner, line


def _shown(key: str, value: object) -> str:
    if _SECRET.search(key):
        return MASK
    if isinstance(value, tuple | list | frozenset):
        return ", ".join(_shown("", item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_shown(str(name), item)}" for name, item in value.items())
    if isinstance(value, Struct):
        return "on"  # it has no keys: its presence is the value
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else _USERINFO.sub(rf"\1:{MASK}@", str(value))
