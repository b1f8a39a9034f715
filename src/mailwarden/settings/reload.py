"""A changed configuration in a running process: which keys it uses at once, and which need a restart."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T", bound=Struct)


class Reloadable(Struct, frozen=True):
    """The keys that a running process can change: each key covers all keys below it, but for the exceptions."""

    keys: tuple[str, ...]
    except_last: tuple[str, ...] = ()  # last parts of keys that need a restart nevertheless

    def covers(self, key: str) -> bool:
        parts = key.split(".")
        if any(part in self.except_last for part in parts):
            return False
        return any(parts[: len(each)] == each for each in (known.split(".") for known in self.keys))


class Changes(Struct, frozen=True):
    """The changed keys, without their values, which may be secrets."""

    reloaded: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


def merge(current: T, new: T, reloadable: Reloadable) -> tuple[T, Changes]:
    """Return the configuration that a running process can use, and the changed keys."""
    merged = _merged(current, new, reloadable, "")
    assert isinstance(merged, type(current))
    return merged, Changes(tuple(_changed(current, merged, "")), tuple(_changed(merged, new, "")))


def _merged(current: object, new: object, reloadable: Reloadable, key: str) -> object:
    if isinstance(current, Struct) and type(current) is type(new):
        names = {field.name: _join(key, field.encode_name) for field in msgspec.structs.fields(type(current))}
        values = {
            name: _merged(getattr(current, name), getattr(new, name), reloadable, path) for name, path in names.items()
        }
        return msgspec.structs.replace(current, **values)
    if isinstance(current, Mapping) and isinstance(new, Mapping) and reloadable.covers(key):
        return {
            name: _merged(current[name], value, reloadable, _join(key, name)) if name in current else value
            for name, value in new.items()
        }
    return new if reloadable.covers(key) else current


def _changed(before: object, after: object, key: str) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, Struct) and type(before) is type(after):
        for field in msgspec.structs.fields(type(before)):
            path = _join(key, field.encode_name)
            yield from _changed(getattr(before, field.name), getattr(after, field.name), path)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys([*before, *after]):
            yield from _changed(before.get(name), after.get(name), _join(key, str(name)))
    else:
        yield key


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def sentences(changes: Changes) -> Sequence[str]:
    """Return a line for each changed key."""
    reloaded = [f"{key}: a reload is enough" for key in changes.reloaded]
    return [*reloaded, *(f"{key}: needs a restart" for key in changes.restart)]
