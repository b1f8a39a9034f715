"""Reads one YAML file into a frozen record, or reports every mistake in it with file, line and key."""

import difflib
import inspect
import re
import types
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from mailwarden.errors import YAML_TYPES, ConfigurationError, plain_problem
from mailwarden.settings.document import NotADocument, load

T = TypeVar("T")
TYPE = "type"
Types = Mapping[str, type[msgspec.Struct]]

_WITHOUT_COLON = re.compile(r"^([A-Za-z]+)\s*\{\s*\}$")


class Mistake(msgspec.Struct, frozen=True):
    """One mistake with its file, line and key."""

    file: str
    line: int
    key: str
    problem: str

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line}: {self.key}: {self.problem}"
            if self.key
            else f"{self.file}:{self.line}: {self.problem}"
        )


class Mistakes(ConfigurationError):
    """Every mistake of one or more files."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = tuple(mistakes)


def read(path: Path, kind: type[T]) -> T:
    """Return the file's content as `kind`, or raise Mistakes with all errors in it."""
    node = _load(path)
    mistakes = list(_Checker(str(path)).check(node, kind, "", 1))
    if mistakes:
        raise Mistakes(sorted(mistakes, key=lambda mistake: mistake.line))
    return msgspec.convert(_with_types(node, kind), kind)


def _load(path: Path) -> object:
    try:
        return load(path)
    except NotADocument as error:
        raise Mistakes([Mistake(str(path), line, "", problem) for line, problem in error.problems]) from None


class _Checker:
    """Compares a document with its type."""

    def __init__(self, file: str) -> None:
        self._file = file

    def check(self, node: object, kind: object, key: str, line: int) -> Iterator[Mistake]:
        inner = _without_none(_bare(kind))
        is_record = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
        if node is None and inner is not _bare(kind) and not is_record:
            return
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from self._check_record(node, inner, key, line)
        elif get_origin(inner) in (list, tuple):
            yield from self._check_items(node, kind, get_args(inner)[0], key, line)
        elif get_origin(inner) is dict:
            yield from self._check_entries(node, get_args(inner)[1], key, line)
        else:
            yield from self._check_value(node, kind, key, line)

    def _check_record(self, node: object, kind: type[msgspec.Struct], key: str, line: int) -> Iterator[Mistake]:
        if not isinstance(node, Mapping):
            yield self._mistake(line, key, _not_a_mapping(node, key))
            return
        hints = get_type_hints(kind, include_extras=True)
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        strict = kind.__struct_config__.forbid_unknown_fields
        tag = kind.__struct_config__.tag_field
        unknown = [name for name in node if name not in fields and name != tag] if strict else []
        for name in unknown:
            yield self._mistake(line_of(node, name, line), _join(key, name), _unknown(str(name), fields))
        faulty = set()
        for name, field in fields.items():
            if name in node:
                at = line_of(node, name, line)
                for mistake in self.check(node[name], hints[field.name], _join(key, name), at):
                    faulty.add(name)
                    yield mistake
            elif field.required:
                faulty.add(name)
                yield self._mistake(line, _join(key, name), "is required and missing")
        for name, problem in _rule_mistakes(kind, {name: node[name] for name in node if name in fields}, faulty):
            yield self._mistake(line_of(node, name, line), _join(key, name), problem)

    def _check_items(self, node: object, kind: object, item: object, key: str, line: int) -> Iterator[Mistake]:
        if not isinstance(node, Sequence) or isinstance(node, str):
            yield self._mistake(line, key, f"must be a list, not {_describe(node)}")
            return
        before = False
        for index, value in enumerate(node):
            for mistake in self.check(value, item, f"{key}[{index}]", line_of(node, index, line)):
                before = True
                yield mistake
        if not before:
            yield from self._check_value(node, kind, key, line)

    def _check_entries(self, node: object, value: object, key: str, line: int) -> Iterator[Mistake]:
        if not isinstance(node, Mapping):
            yield self._mistake(line, key, _not_a_mapping(node, key))
            return
        types = by_type(value)
        for name in node:
            at = line_of(node, name, line)
            if types:
                yield from self._check_typed(node[name], types, _join(key, name), at)
            else:
                yield from self.check(node[name], value, _join(key, name), at)

    def _check_typed(self, node: object, types: Types, key: str, line: int) -> Iterator[Mistake]:
        """Check a record of a mapping by name: its `type` selects the record; the default is its name."""
        last = key.rpartition(".")[2]
        named = node[TYPE] if isinstance(node, Mapping) and TYPE in node else last
        if isinstance(named, str) and named in types:
            yield from self._check_record(node, types[named], key, line)
        elif named is last:
            close = difflib.get_close_matches(last, types, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"set `{TYPE}` to {' or '.join(sorted(types))}"
            yield self._mistake(line, key, f"unknown name without a `{TYPE}`; {hint}")
        else:
            yield self._mistake(line_of(node, TYPE, line), _join(key, TYPE), f"must be {' or '.join(sorted(types))}")

    def _check_value(self, node: object, kind: object, key: str, line: int) -> Iterator[Mistake]:
        choices = get_args(_bare(kind)) if get_origin(_bare(kind)) is Literal else ()
        if choices and node not in choices:
            yield self._mistake(line, key, f"must be {' or '.join(map(str, choices))}")
            return
        try:
            msgspec.convert(node, kind)
        except msgspec.ValidationError as error:
            yield self._mistake(line, key, plain_problem(str(error), YAML_TYPES))

    def _mistake(self, line: int, key: str, problem: str) -> Mistake:
        return Mistake(self._file, line, key, problem)


class _InvalidField(Exception):
    """A rule needs a field that is already wrong."""


class _Partial:
    """A record without its wrong fields; a rule that needs one of them is skipped."""

    def __init__(self, kind: type[msgspec.Struct], values: Mapping[str, object]) -> None:
        self._kind = kind
        self._values = values

    def __getattr__(self, name: str) -> object:
        if name in self._values:
            return self._values[name]
        member = inspect.getattr_static(self._kind, name)
        if isinstance(member, property) and member.fget:
            return member.fget(self)
        if isinstance(member, types.FunctionType):
            return types.MethodType(member, self)
        raise _InvalidField(name)


def _rule_mistakes(
    kind: type[msgspec.Struct], given: Mapping[object, object], faulty: Container[str]
) -> Iterator[tuple[str, str]]:
    """Yield the mistakes that the record's own rules find, as far as their fields are valid."""
    rules: Callable[[object], Iterable[tuple[str, str]]] | None = getattr(kind, "mistakes", None)
    if rules is None:
        return
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in faulty:
            continue
        if field.encode_name in given:
            hint = hints[field.name]
            values[field.name] = msgspec.convert(_with_types(given[field.encode_name], hint), hint)
        else:
            values[field.name] = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    try:
        yield from rules(_Partial(kind, values))
    except _InvalidField:
        return


def by_type(kind: object) -> Types:
    """Return the records of a union by their `type`, if they have one."""
    bare = _bare(kind)
    members = get_args(bare) if get_origin(bare) in (Union, types.UnionType) else (bare,)
    records = [member for member in members if isinstance(member, type) and issubclass(member, msgspec.Struct)]
    return {
        str(record.__struct_config__.tag): record for record in records if record.__struct_config__.tag_field == TYPE
    }


def _with_types(node: object, kind: object) -> object:
    """Return the document with the `type` added to each record in a mapping by name that lacks it."""
    inner = _without_none(_bare(kind))
    if not isinstance(node, Mapping):
        return node
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
        hints = get_type_hints(inner, include_extras=True)
        kinds = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(inner)}
        return {name: _with_types(value, kinds[name]) if name in kinds else value for name, value in node.items()}
    if get_origin(inner) is dict and by_type(get_args(inner)[1]):
        return {name: {TYPE: name, **value} if isinstance(value, Mapping) else value for name, value in node.items()}
    return node


def _bare(kind: object) -> object:
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return kind


def _without_none(kind: object) -> object:
    if get_origin(kind) in (Union, types.UnionType):
        rest = [_bare(arg) for arg in get_args(kind) if arg is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return kind


def line_of(node: object, key: object, default: int) -> int:
    """Return the line of a key or an item, as ruamel.yaml recorded it."""
    marks = getattr(node, "lc", None)
    try:
        return int(marks.data[key][0]) + 1 if marks else default
    except (KeyError, IndexError, TypeError, AttributeError):
        return default


def _join(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def _describe(node: object) -> str:
    """Return the kind of a value, never the value: it may be a secret."""
    if node is None:
        return "nothing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a mapping"}
    return next((name for kind, name in names.items() if isinstance(node, kind)), "something else")


def _not_a_mapping(node: object, key: str) -> str:
    last = key.rpartition(".")[2] or "key"
    if node is None:
        return f"is empty: write `{last}: {{}}`, or leave the key out"
    without_colon = _WITHOUT_COLON.match(node) if isinstance(node, str) else None
    if without_colon:
        return f"must be a mapping: write `{without_colon[1]}: {{}}` with a colon"
    return f"must be a mapping of keys to values, not {_describe(node)}"


def _unknown(name: str, fields: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, fields, n=1)
    return (
        f"unknown key; did you mean `{close[0]}`?" if close else f"unknown key; known are {', '.join(sorted(fields))}"
    )
