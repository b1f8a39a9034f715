"""The requests of all calls, without any input or output.

Any number of list entries becomes calls of at most 500, within the API's size limit.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from enum import Enum
from typing import Union
from urllib.parse import quote
from uuid import UUID

LISTS = "/api/public/lists/v1"
MAX_ENTRIES = 500
# The API accepts 4 MiB. A call of 500 entries of full length with full comments could exceed it.
MAX_BODY = 4_000_000
NDJSON = "application/x-ndjson"
_JSON = {"Content-Type": "application/json"}
_MESSAGE = {"Content-Type": "message/rfc822"}
_DEFAULT_LIMIT = 500  # of a page; the APIs allow no more

Tenant = Union[UUID, str, None]
Id = Union[UUID, str]


class Keep(Enum):
    """The value of a field that a call leaves as it is."""

    KEEP = "keep"


KEEP = Keep.KEEP


class Repeat(Enum):
    """When a failed call may be sent again."""

    ALWAYS = "always"  # a second call has the same effect
    IF_ANSWERED = "if answered"  # after an error of the service, not after a lost response
    IF_REFUSED = "if refused"  # only if the first call certainly did nothing


@dataclass(frozen=True)
class NewEntry:
    """An entry to add or update: an omitted field keeps its value; `""` and None clear it."""

    entry: str
    comment: str | Keep = KEEP
    expires: datetime | Keep | None = KEEP


@dataclass(frozen=True)
class Request:
    """One call; `repeat` says when it may be sent again. `entries` counts the list entries in the body."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    repeat: Repeat = Repeat.ALWAYS
    entries: int = 0


def submit(
    message: bytes,
    sender: str,
    recipients: Sequence[str],
    *,
    remote_address: str | None,
    helo: str | None,
    tenant: Tenant,
    idempotency_key: str | None,
) -> Request:
    border = {"envelopeFrom": sender, "envelopeRecipients": list(recipients)}
    border.update(_given(remoteAddress=remote_address, senderHelo=helo))
    parameters = {"borderMtaData": border, **_given(tenantUid=tenant)}
    boundary = secrets.token_hex(24)
    body = b"".join(
        (
            _part(boundary, 'name="parameters"', "application/json"),
            _encode(parameters),
            b"\r\n",
            _part(boundary, 'name="email"; filename="message.eml"', "message/rfc822"),
            message,
            f"\r\n--{boundary}--\r\n".encode(),
        )
    )
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = idempotency_key
    # A second scan is a second message in the history and in the figures of its sender.
    repeat = Repeat.IF_ANSWERED if idempotency_key is None else Repeat.ALWAYS
    return Request("POST", "/v1/messageQueue/submitEmail", {}, headers, body, repeat)


def _part(boundary: str, name: str, media_type: str) -> bytes:
    head = f"--{boundary}\r\nContent-Disposition: form-data; {name}\r\nContent-Type: {media_type}\r\n\r\n"
    return head.encode()


def explanation(ggrid: Id, tenant: Tenant) -> Request:
    return Request("GET", f"/v1/messages/{_segment(ggrid)}", _given(tenantUid=tenant))


def status() -> Request:
    return Request("POST", "/v1/admin/status")


def lists(tenant: Tenant) -> Request:
    return Request("POST", f"{LISTS}/getLists", {}, _JSON, _encode(_head(tenant, None)))


def entries(list_name: str, tenant: Tenant) -> Request:
    return Request("POST", f"{LISTS}/listEntries", {}, _JSON, _encode(_head(tenant, list_name)))


def add_entries(list_name: str, given: Iterable[NewEntry | str], tenant: Tenant) -> Iterator[Request]:
    """Yield the calls of addEntries."""
    return _split("addEntries", _head(tenant, list_name), map(_entry, given))


def delete_entries(list_name: str, given: Iterable[str], tenant: Tenant) -> Iterator[Request]:
    """Yield the calls of deleteEntries."""
    return _split("deleteEntries", _head(tenant, list_name), given)


def _entry(given: NewEntry | str) -> Mapping[str, str | None]:
    entry = NewEntry(given) if isinstance(given, str) else given
    record: dict[str, str | None] = {"entry": entry.entry}
    if not isinstance(entry.comment, Keep):
        record["comment"] = entry.comment
    if not isinstance(entry.expires, Keep):
        record["expires"] = None if entry.expires is None else time_text(entry.expires)
    return record


def _head(tenant: Tenant, list_name: str | None) -> dict[str, str]:
    """Return the fields that select the list; an empty tenant is an error, never the global scope."""
    head = {} if list_name is None else {"listName": list_name}
    if tenant is not None:
        head["tenantUid"] = str(tenant)
    return head


def _split(operation: str, head: Mapping[str, str], given: Iterable[object]) -> Iterator[Request]:
    opening = _encode(head)[:-1] + b',"entries":['
    room = MAX_BODY - len(opening) - 2
    items: list[bytes] = []
    size = 0
    for each in given:
        item = _encode(each)
        if items and (len(items) == MAX_ENTRIES or size + len(item) + 1 > room):
            yield _entries_request(operation, opening, items)
            items, size = [], 0
        items.append(item)
        size += len(item) + 1
    if items:
        yield _entries_request(operation, opening, items)


def _entries_request(operation: str, opening: bytes, items: Sequence[bytes]) -> Request:
    body = opening + b",".join(items) + b"]}"
    return Request("POST", f"{LISTS}/{operation}", {}, _JSON, body, entries=len(items))


@dataclass(frozen=True)
class Search:
    """A search of messages, in the language of the console."""

    q: str = ""
    tenant: Tenant = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def params(self) -> dict[str, str]:
        return {"q": self.q, **_given(tenantUid=self.tenant, since=self.since, until=self.until)}


def messages(search: Search, order: str, after: str | None, limit: int = _DEFAULT_LIMIT) -> Request:
    return Request("GET", "/v1/messages", {**search.params, **_given(order=order, after=after, limit=limit)})


def message_stream(search: Search, order: str, after: str | None) -> Request:
    params = {**search.params, **_given(order=order, after=after)}
    return Request("GET", "/v1/messages", params, {"Accept": NDJSON})


def count(search: Search) -> Request:
    return Request("GET", "/v1/messages/count", search.params)


def statistics(tenant: Tenant, first: date | None, last: date | None) -> Request:
    return Request("GET", "/v1/statistics", _given(tenantUid=tenant, to=last, **{"from": first}))


def held_messages(filters: Mapping[str, object], after: Id | None) -> Request:
    return Request("GET", "/v1/quarantine", _given(**filters, after=after, limit=_DEFAULT_LIMIT))


def held_message(uid: Id) -> Request:
    return Request("GET", f"/v1/quarantine/{_segment(uid)}")


def download(uid: Id) -> Request:
    return Request("GET", f"/v1/quarantine/{_segment(uid)}/message")


def release(uid: Id, recipients: Sequence[str] | None, allow: str | None, *, global_list: bool, train: bool) -> Request:
    order: dict[str, object] = {"globalList": global_list, "train": train}
    if recipients is not None:
        order["recipients"] = list(recipients)
    if allow is not None:
        order["allow"] = allow
    path = f"/v1/quarantine/{_segment(uid)}/release"
    return Request("POST", path, {}, _JSON, _encode(order), Repeat.IF_REFUSED)


def delete_held(uid: Id, recipient: str | None, block: str | None) -> Request:
    params = _given(recipient=recipient, block=block)
    return Request("DELETE", f"/v1/quarantine/{_segment(uid)}", params, repeat=Repeat.IF_REFUSED)


def report(message: bytes, kind: str, tenant: Id) -> Request:
    return Request("POST", "/v1/reports", _given(kind=kind, tenantUid=tenant), _MESSAGE, message)


def report_message(ggrid: Id, kind: str, tenant: Tenant, message: bytes | None) -> Request:
    headers = {} if message is None else _MESSAGE
    path = f"/v1/messages/{_segment(ggrid)}/report"
    return Request("POST", path, _given(kind=kind, tenantUid=tenant), headers, message or b"")


def reports(tenant: Id, before: datetime | None, before_uid: Id | None) -> Request:
    """The time alone is no place: several reports may have the same one."""
    query = _given(tenantUid=tenant, before=before, beforeUid=before_uid, limit=_DEFAULT_LIMIT)
    return Request("GET", "/v1/reports", query)


def withdraw_report(uid: Id) -> Request:
    return Request("DELETE", f"/v1/reports/{_segment(uid)}", repeat=Repeat.IF_REFUSED)


def training(tenant: Id) -> Request:
    return Request("GET", "/v1/training", _given(tenantUid=tenant))


def reset_training(tenant: Id) -> Request:
    return Request("DELETE", "/v1/training", _given(tenantUid=tenant), repeat=Repeat.IF_REFUSED)


def events(
    after: str | None, types: Sequence[str] | None, tenant: Tenant, wait: int, limit: int = _DEFAULT_LIMIT
) -> Request:
    chosen = None if types is None else ",".join(types)
    params = _given(after=after, types=chosen, tenantUid=tenant, wait=wait, limit=limit)
    return Request("GET", "/v1/events", params)


def time_text(moment: datetime) -> str:
    """Return the time as RFC 3339; a time without a zone is an error, because its meaning depends on the machine."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no time zone.")
    return moment.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _given(**values: object) -> dict[str, str]:
    """Return the values that are not None, as text."""
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: object) -> str:
    return time_text(value) if isinstance(value, datetime) else str(value)


def _segment(value: Id) -> str:
    return quote(str(value), safe="")


def _encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
