"""Reads and changes lists: the operations of the List API and of the console.

An expired entry stops acting at once. It is still listed and counted for a day, so that it can be extended.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mailwarden.errors import EntryTooBroad, InvalidEntry, NotFound, SchemaViolation, TooManyEntries
from mailwarden.lists.catalogue import CATALOGUE, ListDefinition, find_list
from mailwarden.lists.change_log import Change, ChangeLog, Line, Undone
from mailwarden.lists.entry_store import EntryPage, EntryStore
from mailwarden.lists.files import Plan, Row, Survey, compare, normalised, read_text, survey
from mailwarden.lists.kinds import Entry
from mailwarden.lists.requests import ListEntryInput, ListFileInfo, ListInfo, PublicListsEntry
from mailwarden.lists.store import Changes, ListScope, ListStore, Reading, Stamp
from mailwarden.model.scope import Actor
from mailwarden.wire.strict_json import violation_at

MAX_ENTRIES = 500
_SHOWN = 200

MAX_IMPORT = 50_000  # entries of one change; more are for the command, which goes on where it was broken off

_encode = msgspec.json.Encoder().encode


def read_entries(definition: ListDefinition, texts: Sequence[str]) -> list[Entry]:
    """Return the entries in the order given, one for each text, or raise one error that lists all that is wrong.

    Where some are invalid and some too broad, the error is InvalidEntry.
    """
    _check_number(texts)
    plain = definition.normalise_plain(texts)
    entries = [entry for entry in plain if entry is not None]
    if len(entries) == len(texts):
        return entries
    entries.clear()
    details: list[Mapping[str, object]] = []
    invalid = False
    for index, (text, entry) in enumerate(zip(texts, plain, strict=True)):
        try:
            entries.append(definition.normalise(text) if entry is None else entry)
        except (InvalidEntry, EntryTooBroad) as error:
            details.append(_detail(index, text, error.message))
            invalid = invalid or isinstance(error, InvalidEntry)
    if invalid:
        raise InvalidEntry(f"{_count(len(details))} cannot be taken into {definition.name}.", details=details)
    if details:
        raise EntryTooBroad(f"{_count(len(details))} would cover too much for {definition.name}.", details=details)
    return entries


def spell_entries(definition: ListDefinition, texts: Sequence[str]) -> list[Entry]:
    """Return the valid entries among the texts, unique and sorted."""
    _check_number(texts)
    return sorted(set(_spelled(definition, texts)))


def _spelled(definition: ListDefinition, texts: Iterable[str]) -> Iterable[Entry]:
    for text in texts:
        try:
            yield definition.spell(text)
        except (InvalidEntry, EntryTooBroad):
            continue


def _check_number(texts: Sequence[str]) -> None:
    if len(texts) > MAX_ENTRIES:
        raise TooManyEntries(f"One call takes at most {MAX_ENTRIES} entries, not {len(texts)}.")


def _detail(index: int, text: str, reason: str) -> Mapping[str, object]:
    # Half a surrogate pair cannot be written as UTF-8, and an answer must not repeat all of a hostile entry.
    return {"index": index, "entry": _writable(text[:_SHOWN]), "reason": _writable(reason)}


def _writable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _count(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


class Preview(Struct, frozen=True):
    """The effect of an import of a text into a list."""

    survey: Survey
    plan: Plan
    rows: Sequence[Row]  # those that would change something, in the order of their entries
    fresh: AbstractSet[str]  # the entries that are not there yet
    room: int

    @property
    def fits(self) -> bool:
        return self.plan.new <= self.room


class ListService:
    """Reads and changes the lists of one scope at a time."""

    def __init__(self, store: ListStore) -> None:
        self._store = store
        self._entries = EntryStore(store.database)
        self._log = ChangeLog(store.database)

    async def add_entries(
        self, scope: ListScope, list_name: str, inputs: Sequence[ListEntryInput], actor: Actor
    ) -> int:
        """Add or update the entries, all or none; return how many different ones they were."""
        definition = find_list(list_name)
        entries = read_entries(definition, [text.entry for text in inputs])
        last = dict(zip(entries, range(len(inputs)), strict=True))  # of equal entries the last wins
        if last:
            await self._store.add(scope, definition, changes_of(last, inputs), stamp_of(actor))
        return len(last)

    async def delete_entries(self, scope: ListScope, list_name: str, texts: Sequence[str], actor: Actor) -> int:
        """Delete the entries that exist; return how many. Invalid entries are ignored."""
        definition = find_list(list_name)
        entries = spell_entries(definition, texts)
        return await self._store.delete(scope, definition, entries, stamp_of(actor)) if entries else 0

    def available(self, scope: ListScope) -> Sequence[ListFileInfo]:
        """Return all lists of the scope with their metadata, in the order of the catalogue."""
        return [
            ListFileInfo(
                definition.name,
                ListInfo(
                    definition.display_name,
                    definition.category,
                    definition.description,
                    definition.max_size(in_tenant=scope.tenant is not None),
                ),
            )
            for definition in CATALOGUE
        ]

    def reading(self, scope: ListScope, list_name: str) -> AbstractAsyncContextManager[Reading]:
        """Open one snapshot of a list, for its count and its lines."""
        return self._store.reading(scope, find_list(list_name))

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
            entries = await self._entries.present(scope, definition, [definition.spell(text)])
        except InvalidEntry:
            entries = []
        if not entries:
            raise NotFound("There is no such entry in this list.")
        return entries[0]

    async def present(self, scope: ListScope, list_name: str, entries: Sequence[str]) -> list[PublicListsEntry]:
        """Return those of the entries, in their stored form, that exist."""
        return await self._entries.present(scope, find_list(list_name), entries)

    async def changes(self, scope: ListScope, list_name: str, before: int = 0) -> list[Change]:
        """Return the newest changes of a list, or those before a number."""
        return await self._log.newest(scope, find_list(list_name), before)

    async def change(self, scope: ListScope, list_name: str, number: int) -> tuple[Change, tuple[Line, ...]]:
        """Return one change with what it did to every entry, or raise NotFound."""
        change_and_lines = await self._log.find(scope, find_list(list_name), number)
        if change_and_lines is None:
            raise NotFound("There is no such change of this list, or it is too long ago.")
        return change_and_lines

    async def undo(self, scope: ListScope, list_name: str, number: int, actor: Actor) -> Undone:
        """Take a change back as far as its entries are as it left them."""
        return await self._log.undo(scope, find_list(list_name), number, stamp_of(actor))

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
        """Return the effect of an import; entries without a comment or an expiry get these."""
        definition = find_list(list_name)
        # Fifty thousand lines take a second to read: beside the loop, for abby scans meanwhile.
        text_survey = await asyncio.to_thread(
            lambda: survey(normalised(definition, read_text(text, form), comment, expires), MAX_IMPORT)
        )
        if text_survey.last is None:
            raise _too_many(definition)
        names = sorted(text_survey.last)
        present = await self._entries.present(scope, definition, names)
        plan = compare(text_survey.last, present)
        rows = [text_survey.last[name] for name in names if plan.sends(text_survey.last[name])]
        used = (await self._entries.counts(scope)).get(definition.name, 0)
        room = definition.max_size(in_tenant=scope.tenant is not None) - used
        return Preview(text_survey, plan, rows, text_survey.last.keys() - {entry.entry for entry in present}, room)

    async def import_rows(
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
                [_stored_comment(row.comment) for row in ordered],
                [_stored_expiry(row.expires) for row in ordered],
            )
            await self._store.add(scope, definition, changes, stamp_of(actor, action))
        return len(last)


def stamp_of(actor: Actor, action: str = "") -> Stamp:
    return Stamp(time_text(datetime.now(UTC)), json_text(actor.name), actor, action)


def time_text(moment: datetime) -> str:
    """Return the moment as every time of a list is kept and shown: UTC, milliseconds, 24 characters."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def changes_of(last: Mapping[Entry, int], inputs: Sequence[ListEntryInput]) -> Changes:
    """Return what the store writes: every entry with the comment and expiry of the input that counts for it."""
    names = sorted(last)
    order = [last[name] for name in names]
    comments = [inputs[index].comment for index in order]
    # Most calls repeat a few comments, and set no expiry.
    stored = {comment: _stored_comment(comment) for comment in set(comments)}
    expiries = None
    if any(text.expires is not UNSET for text in inputs):
        expiries = [_expiry(inputs[index], index) for index in order]
    return Changes(names, [stored[comment] for comment in comments], expiries)


def _stored_comment(comment: str | UnsetType) -> str | None:
    return None if comment is UNSET else json_text(comment)


def _stored_expiry(expires: datetime | UnsetType | None) -> str | None:
    if expires is None:
        return ""
    return None if expires is UNSET else time_text(expires)


def _expiry(entry_input: ListEntryInput, index: int) -> str | None:
    try:
        return _stored_expiry(entry_input.expires)
    except OverflowError:  # a moment before the year 1 or after 9999 once its offset is taken off
        raise _no_moment(index) from None


def _no_moment(index: int) -> SchemaViolation:
    return violation_at(f"/entries/{index}/expires", "Not a moment that can be written in UTC")


def json_text(text: str) -> str:
    """Return a text as comments and names are stored."""
    return _encode(text).decode()


def _too_many(definition: ListDefinition) -> TooManyEntries:
    return TooManyEntries(
        f"The console takes up to {MAX_IMPORT:,} entries at once; "
        f"for more use the command: mailwarden lists import {definition.name} FILE."
    )
