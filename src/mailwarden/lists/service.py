"""The four operations of the List API: entries are read, folded and sorted here, and written by the store."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, UnsetType

from mailwarden.errors import SchemaViolation
from mailwarden.lists.catalogue import CATALOGUE, find_list
from mailwarden.lists.entries import read_entries, spell_entries
from mailwarden.lists.scope import ListScope
from mailwarden.lists.statements import Changes, Stamp
from mailwarden.lists.store import ListStore, Reading
from mailwarden.model.actor import Actor
from mailwarden.wire.lists import ListEntryInput, ListFileInfo, ListInfo
from mailwarden.wire.strict_json import violation_at

_encode = msgspec.json.Encoder().encode


class Lists:
    """Reads and changes the lists of one scope at a time."""

    def __init__(self, store: ListStore) -> None:
        self._store = store

    async def add_entries(
        self, scope: ListScope, list_name: str, inputs: Sequence[ListEntryInput], actor: Actor
    ) -> int:
        """Add or update the entries, all or none; return how many different ones they were."""
        definition = find_list(list_name)
        entries = read_entries(definition, [each.entry for each in inputs])
        last = dict(zip(entries, range(len(inputs)), strict=True))  # of equal entries the last wins
        if last:
            chosen = [(entry, inputs[index], index) for entry, index in sorted(last.items())]
            changes = Changes(
                [entry for entry, _, _ in chosen],
                [UNSET if each.comment is UNSET else json_text(each.comment) for _, each, _ in chosen],
                [_expiry(each, index) for _, each, index in chosen],
            )
            await self._store.add(scope, definition, changes, stamp_of(actor))
        return len(last)

    async def delete_entries(self, scope: ListScope, list_name: str, texts: Sequence[str], actor: Actor) -> int:
        """Delete what exists of the entries; return how many did. What cannot be an entry does not exist."""
        definition = find_list(list_name)
        entries = spell_entries(definition, texts)
        return await self._store.delete(scope, definition, entries, stamp_of(actor)) if entries else 0

    def available(self, scope: ListScope) -> Sequence[ListFileInfo]:
        """Return all lists of the scope with their metadata, in the order of the catalogue."""
        return [
            ListFileInfo(
                each.name,
                ListInfo(
                    each.display_name,
                    each.category,
                    each.description,
                    each.max_size(in_tenant=scope.tenant is not None),
                ),
            )
            for each in CATALOGUE
        ]

    def reading(self, scope: ListScope, list_name: str) -> AbstractAsyncContextManager[Reading]:
        """Open one snapshot of a list, for its count and its lines."""
        return self._store.reading(scope, find_list(list_name))


def stamp_of(actor: Actor, action: str = "") -> Stamp:
    return Stamp(time_text(datetime.now(UTC)), json_text(actor.name), actor, action)


def time_text(moment: datetime) -> str:
    """Return the moment as every time of a list is kept and shown: UTC, milliseconds, 24 characters."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _expiry(each: ListEntryInput, index: int) -> str | UnsetType | None:
    if each.expires is UNSET or each.expires is None:
        return each.expires
    try:
        return time_text(each.expires)
    except OverflowError:  # a moment before the year 1 or after 9999 once its offset is taken off
        raise _no_moment(index) from None


def _no_moment(index: int) -> SchemaViolation:
    return violation_at(f"/entries/{index}/expires", "Not a moment that can be written in UTC")


def json_text(text: str) -> str:
    """Return a text as comments and names are stored."""
    return _encode(text).decode()
