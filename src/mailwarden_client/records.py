"""The records that calls return, and their decoder. Fields that this version does not know are ignored."""

import dataclasses
import re
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import cache
from typing import Any, Optional, TypeVar, Union, cast
from uuid import UUID

T = TypeVar("T")
Json = Mapping[str, Any]

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True)
class ScanResult:
    """The result of a scan. Never deliver a message whose decision is `undecided`."""

    ggrid: UUID
    created: datetime
    completed: datetime
    decision: str  # undecided, deliver, quarantine, bounce, drop
    verdict: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class ListInfo:
    display_name: str
    category: str
    description: str
    max_size: int


@dataclass(frozen=True)
class ListFileInfo:
    """One list with its metadata."""

    list_name: str
    list_info: ListInfo


@dataclass(frozen=True)
class Entry:
    """One entry of a list."""

    entry: str
    comment: str
    created: datetime
    created_by: str
    updated: datetime
    updated_by: str
    expires: Optional[datetime]
    hits: int
    last_hit: Optional[datetime]


@dataclass(frozen=True)
class SearchResult:
    """One message of a search."""

    ggrid: UUID
    tenant_uid: UUID
    created: datetime
    verdict: str
    decision: str
    from_address: str
    from_name: str
    recipients: tuple[str, ...]
    subject: str
    tags: tuple[str, ...]
    points: int
    reason: str
    campaign: Optional[UUID]


@dataclass(frozen=True)
class MessagePage:
    """A page of a search; if not `complete`, the period was searched up to `searched_back`, and `next` continues."""

    messages: tuple[SearchResult, ...]
    next: Optional[str]
    complete: bool
    searched_back: Optional[datetime]


@dataclass(frozen=True)
class StreamEnd:
    """Where a stream of messages ended; if not `complete`, `next` continues."""

    messages: int
    next: Optional[str]
    complete: bool
    searched_back: Optional[datetime]


@dataclass(frozen=True)
class MessageCount:
    """The number of matches; the newest `counted` of them by tenant, verdict, decision and state."""

    count: int
    exact: bool
    counted: int
    tenants: Mapping[str, int]
    verdicts: Mapping[str, int]
    decisions: Mapping[str, int]
    states: Mapping[str, int]


@dataclass(frozen=True)
class DayRecord:
    day: date
    complete: bool
    messages: int
    verdicts: Mapping[str, int]
    decisions: Mapping[str, int]


@dataclass(frozen=True)
class AttackRecord:
    value: str
    messages: int


@dataclass(frozen=True)
class Statistics:
    """The figures of days of one tenant, or of all tenants of the credential."""

    tenant_uid: Optional[UUID]
    days: tuple[DayRecord, ...]
    complete: bool
    attacked_recipients: tuple[AttackRecord, ...]
    attacking_domains: tuple[AttackRecord, ...]
    attacks_complete: bool


@dataclass(frozen=True)
class HeldRecipient:
    """The state of a held message for one recipient: held, releasing, released, deleted."""

    address: str
    state: str
    failure: str
    changed_by: str
    changed_at: Optional[datetime]


@dataclass(frozen=True)
class HeldMessage:
    """One message in quarantine."""

    uid: UUID
    tenant_uid: UUID
    ggrid: UUID
    verdict: str
    sender: str
    from_address: str
    from_name: str
    subject: str
    size: int
    received_at: datetime
    expires_at: datetime
    stored: bool
    recipients: tuple[HeldRecipient, ...]


@dataclass(frozen=True)
class Report:
    """One report about a message, and the state of its training."""

    uid: UUID
    tenant_uid: UUID
    kind: str
    state: str
    ggrid: Optional[UUID]
    subject: str
    size: int
    reported_by: str
    reported_at: datetime


@dataclass(frozen=True)
class Training:
    """The number of messages that trained a tenant's filter."""

    tenant_uid: UUID
    threats: int
    good: int
    waiting: int
    required: int
    active: bool
    rebuilding: bool


@dataclass(frozen=True)
class Event:
    """One event; `data` depends on the type. A second delivery has the same `id`."""

    id: UUID
    type: str
    version: int
    time: datetime
    tenant_uid: Optional[UUID]
    subject: str
    data: Mapping[str, object]


@dataclass(frozen=True)
class EventPage:
    """Events in their order. Store `next` after you have handled them, and continue from there.

    A page may be empty. `more` says that there may be further events now.
    """

    events: tuple[Event, ...]
    next: str
    more: bool


def read_time(text: str) -> datetime:
    """Return an RFC 3339 time; `datetime.fromisoformat` reads fewer forms before Python 3.11."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time")
    zone = timezone.utc if found[3] == "Z" else datetime.strptime(found[3], "%z").tzinfo
    moment = datetime.fromisoformat(found[1]).replace(tzinfo=zone)
    return moment + timedelta(microseconds=int((found[2] or "0").ljust(6, "0")[:6]))


def decode(kind: type[T], value: object) -> T:
    """Return the JSON value as a record; raise ValueError if it is not one."""
    return cast("T", _reader(cast("Hashable", kind))(value))


@cache  # one for each type of a record
def _reader(kind: Any) -> Callable[[object], object]:  # noqa: ANN401 -- a type of the typing module is no `type`
    """Return the function that reads a value of this type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is object or kind is Any:
        return lambda value: value
    if dataclasses.is_dataclass(kind):
        return _record_reader(kind)
    if origin is Union:
        inner = _reader(arguments[0])
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return _tuple_reader(_reader(arguments[0]))
    if origin is not None:  # a mapping
        return _mapping_reader(_reader(arguments[1]))
    return _plain_reader(kind)


def _record_reader(kind: Any) -> Callable[[object], object]:  # noqa: ANN401 -- a class with fields
    hints = typing.get_type_hints(kind)
    fields = [(each.name, _camel(each.name), _reader(hints[each.name])) for each in dataclasses.fields(kind)]

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError(f"{kind.__name__} is not an object")  # noqa: TRY004 -- one error for all
        try:
            return kind(**{name: reader(value[key]) for name, key, reader in fields})
        except KeyError as error:
            raise ValueError(f"{kind.__name__} has no {error}") from None

    return read


def _tuple_reader(inner: Callable[[object], object]) -> Callable[[object], object]:
    def read(value: object) -> object:
        if not isinstance(value, list):
            raise ValueError("not an array")  # noqa: TRY004 -- one error for all
        return tuple(inner(each) for each in value)

    return read


def _mapping_reader(inner: Callable[[object], object]) -> Callable[[object], object]:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError("not an object")  # noqa: TRY004 -- one error for all
        return {name: inner(each) for name, each in value.items()}

    return read


_FROM_TEXT: Mapping[Any, Callable[[str], object]] = {UUID: UUID, datetime: read_time, date: date.fromisoformat}


def _plain_reader(kind: Any) -> Callable[[object], object]:  # noqa: ANN401 -- str, int, bool or one of _FROM_TEXT
    convert = _FROM_TEXT.get(kind)

    def read(value: object) -> object:
        if convert is not None and isinstance(value, str):
            return convert(value)
        if convert is not None or type(value) is not kind:
            raise ValueError(f"{str(value)[:40]!r} is not a {kind.__name__}")
        return value

    return read


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
