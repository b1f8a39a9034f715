"""The lists as people work with them: what is in them, what changed, taking a change back, bringing in a file."""

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from msgspec import UNSET, Struct

from mailwarden.errors import InvalidEntry, NotFound, TooManyEntries
from mailwarden.lists.catalogue import ListDefinition, find_list
from mailwarden.lists.entry_store import EntryPage, EntryStore
from mailwarden.lists.files import Row, read_text
from mailwarden.lists.kinds import Entry
from mailwarden.lists.ledger import Change, ChangeStore, Line
from mailwarden.lists.plan import Plan, Survey, compare, normalised, survey
from mailwarden.lists.scope import ListScope
from mailwarden.lists.service import json_text, stamp_of, time_text
from mailwarden.lists.statements import Changes
from mailwarden.lists.store import ListStore
from mailwarden.lists.undoing import Undone, UndoStore
from mailwarden.model.actor import Actor
from mailwarden.wire.lists import PublicListsEntry

MAX_IMPORT = 50_000  # entries of one change; more are for the command, which goes on where it was broken off


class Preview(Struct, frozen=True):
    """What bringing a text into a list would do."""

    seen: Survey
    plan: Plan
    rows: Sequence[Row]  # those that would change something, in the order of their entries
    fresh: AbstractSet[str]  # the entries that are not there yet
    room: int

    @property
    def fits(self) -> bool:
        return self.plan.new <= self.room


class ListDesk:
    """All that the console does with lists besides the operations of the List API."""

    def __init__(self, store: ListStore, entries: EntryStore, changes: ChangeStore, undoing: UndoStore) -> None:
        self._store = store
        self._entries = entries
        self._changes = changes
        self._undoing = undoing

    async def counts(self, scope: ListScope) -> Mapping[str, int]:
        """Return how many entries each list has that was ever used."""
        return await self._entries.counts(scope)

    async def page(self, scope: ListScope, list_name: str, search: str = "", after: str = "") -> EntryPage:
        """Return a page of the entries that hold the text, or whose comment does."""
        return await self._entries.page(scope, find_list(list_name), search, after)

    async def find(self, scope: ListScope, list_name: str, text: str) -> PublicListsEntry:
        """Return one entry, however it is spelled, or raise NotFound."""
        definition = find_list(list_name)
        try:
            found = await self._entries.present(scope, definition, [definition.spell(text)])
        except InvalidEntry:
            found = []
        if not found:
            raise NotFound("There is no such entry in this list.")
        return found[0]

    async def present(self, scope: ListScope, list_name: str, entries: Sequence[str]) -> list[PublicListsEntry]:
        """Return those of the entries, in their stored form, that exist."""
        return await self._entries.present(scope, find_list(list_name), entries)

    async def changes(self, scope: ListScope, list_name: str, before: int = 0) -> list[Change]:
        """Return the newest changes of a list, or those before a number."""
        return await self._changes.newest(scope, find_list(list_name), before)

    async def change(self, scope: ListScope, list_name: str, number: int) -> tuple[Change, tuple[Line, ...]]:
        """Return one change with what it did to every entry, or raise NotFound."""
        found = await self._changes.find(scope, find_list(list_name), number)
        if found is None:
            raise NotFound("There is no such change of this list, or it is too long ago.")
        return found

    async def undo(self, scope: ListScope, list_name: str, number: int, actor: Actor) -> Undone:
        """Take a change back as far as its entries are as it left them."""
        return await self._undoing.undo(scope, find_list(list_name), number, stamp_of(actor))

    async def preview(
        self,
        scope: ListScope,
        list_name: str,
        text: str,
        form: str,
        *,
        comment: str | None = None,
        expires: datetime | None = None,
    ) -> Preview:
        """Tell what bringing a text of this form into a list would do; what has no comment or end gets these."""
        definition = find_list(list_name)
        # Fifty thousand lines take a second to read: beside the loop, for abby scans meanwhile.
        seen = await asyncio.to_thread(
            lambda: survey(normalised(definition, read_text(text, form), comment, expires), MAX_IMPORT)
        )
        if seen.last is None:
            raise _too_many(definition)
        names = sorted(seen.last)
        present = await self._entries.present(scope, definition, names)
        plan = compare(seen.last, present)
        rows = [seen.last[name] for name in names if plan.sends(seen.last[name])]
        used = (await self._entries.counts(scope)).get(definition.name, 0)
        room = definition.max_size(in_tenant=scope.tenant is not None) - used
        return Preview(seen, plan, rows, seen.last.keys() - {each.entry for each in present}, room)

    async def bring_in(
        self, scope: ListScope, list_name: str, rows: Sequence[Row], actor: Actor, *, action: str = "import"
    ) -> int:
        """Add or update all rows as one change, or none; return how many there were.

        Their entries are in stored form, as `preview` gives them.
        """
        definition = find_list(list_name)
        if len(rows) > MAX_IMPORT:
            raise _too_many(definition)
        last = {row.entry: row for row in rows}
        if last:
            ordered = [last[entry] for entry in sorted(last)]
            changes = Changes(
                [Entry(row.entry) for row in ordered],
                [UNSET if row.comment is UNSET else json_text(row.comment) for row in ordered],
                [time_text(row.expires) if isinstance(row.expires, datetime) else row.expires for row in ordered],
            )
            await self._store.add(scope, definition, changes, stamp_of(actor, action))
        return len(last)


def _too_many(definition: ListDefinition) -> TooManyEntries:
    return TooManyEntries(
        f"The console takes up to {MAX_IMPORT:,} entries at once; "
        f"for more use the command: mailwarden lists import {definition.name} FILE."
    )
