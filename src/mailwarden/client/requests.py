"""The bodies of calls: splits any number of entries into calls of at most 500, within the API's size limit."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mailwarden.wire.lists import MAX_ENTRIES

PREFIX = "/api/public/lists/v1"
ADD, DELETE, GET_LISTS, LIST_ENTRIES = "addEntries", "deleteEntries", "getLists", "listEntries"
# The API accepts 4 MiB. A call of 500 entries of full length with full comments could exceed it.
MAX_BODY = 4_000_000

Tenant = UUID | str | None


class NewEntry(Struct, frozen=True):
    """An entry to add or update: an omitted field keeps its value; `""` and None clear it."""

    entry: str
    comment: str | UnsetType = UNSET
    expires: datetime | UnsetType | None = UNSET


class Request(Struct, frozen=True):
    """The body of one call, and its number of entries."""

    body: bytes
    entries: int = 0


def plain_request(tenant: Tenant, list_name: str | None = None) -> Request:
    """Return the body of getLists or listEntries."""
    return Request(msgspec.json.encode(_head(tenant, list_name)))


def add_requests(list_name: str, entries: Iterable[NewEntry | str], tenant: Tenant) -> Iterator[Request]:
    """Yield the bodies of addEntries."""
    return _split(_head(tenant, list_name), (NewEntry(each) if isinstance(each, str) else each for each in entries))


def delete_requests(list_name: str, entries: Iterable[str], tenant: Tenant) -> Iterator[Request]:
    """Yield the bodies of deleteEntries."""
    return _split(_head(tenant, list_name), entries)


def _head(tenant: Tenant, list_name: str | None) -> dict[str, str]:
    """Return the fields that select the list; an empty tenant is an error, never the global scope."""
    head = {} if list_name is None else {"listName": list_name}
    if tenant is not None:
        head["tenantUid"] = str(tenant)
    return head


def _split(head: dict[str, str], entries: Iterable[NewEntry | str]) -> Iterator[Request]:
    opening = msgspec.json.encode(head)[:-1] + b',"entries":['
    room = MAX_BODY - len(opening) - 2
    items: list[bytes] = []
    size = 0
    for each in entries:
        item = msgspec.json.encode(each)
        if items and (len(items) == MAX_ENTRIES or size + len(item) + 1 > room):
            yield _request(opening, items)
            items, size = [], 0
        items.append(item)
        size += len(item) + 1
    if items:
        yield _request(opening, items)


def _request(opening: bytes, items: list[bytes]) -> Request:
    return Request(opening + b",".join(items) + b"]}", len(items))
