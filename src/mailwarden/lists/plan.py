"""What an import would do: the entries of a file against those that are there, without doing anything yet."""

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.catalogue import ListDefinition
from mailwarden.lists.files import BadRow, Row
from mailwarden.wire.lists import PublicListsEntry

# Above it a file is sent without being compared: what is compared is held in memory.
MAX_COMPARED = 1_000_000
MAX_KEPT = 1_000


class Survey(Struct):
    """A file read through: its valid entries in stored form, each with its last row, and what is wrong with it."""

    rows: int = 0
    invalid: int = 0
    mistakes: list[BadRow] = msgspec.field(default_factory=list)
    last: dict[str, Row] | None = msgspec.field(default_factory=dict)

    @property
    def repeated(self) -> int:
        return 0 if self.last is None else self.rows - len(self.last)


class Plan(Struct, frozen=True):
    """What is to be done; `wanted` is None where everything is sent, else the line of each entry to send."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    gone: tuple[str, ...] = ()
    wanted: dict[str, int] | None = None

    def sends(self, row: Row) -> bool:
        return self.wanted is None or self.wanted.get(row.entry) == row.line


def normalised(
    definition: ListDefinition, rows: Iterable[Row | BadRow], comment: str | None, expires: datetime | None
) -> Iterator[Row | BadRow]:
    """Yield the rows with their entries as they are stored, and a comment and a time for those that have none."""
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        try:
            entry = definition.normalise(row.entry)
        except (InvalidEntry, EntryTooBroad) as error:
            shown = row.entry[:120].encode("utf-8", "replace").decode()
            yield BadRow(row.line, shown, error.message)
            continue
        given = comment if row.comment is UNSET and comment is not None else row.comment
        end = expires if row.expires is UNSET and expires is not None else row.expires
        yield Row(row.line, entry, given, end)


def survey(rows: Iterable[Row | BadRow], most: int = MAX_COMPARED) -> Survey:
    """Read a file through; with more than `most` different entries, they are counted and no longer held."""
    seen = Survey()
    for row in rows:
        if isinstance(row, BadRow):
            seen.invalid += 1
            if len(seen.mistakes) < MAX_KEPT:
                seen.mistakes.append(row)
            continue
        seen.rows += 1
        if seen.last is not None:
            seen.last[row.entry] = row
            if len(seen.last) > most:
                seen.last = None
    return seen


def compare(rows: dict[str, Row], present: Iterable[PublicListsEntry], prune: str | None = None) -> Plan:
    """Tell new entries from changed and unchanged ones; those of the comment `prune` that the file lacks are gone."""
    wanted = {entry: row.line for entry, row in rows.items()}
    changed = unchanged = 0
    gone: list[str] = []
    for each in present:
        row = rows.get(each.entry)
        if row is None:
            if prune is not None and each.comment == prune:
                gone.append(each.entry)
        elif changes(row, each):
            changed += 1
        else:
            unchanged += 1
            del wanted[each.entry]
    return Plan(len(rows) - changed - unchanged, changed, unchanged, tuple(gone), wanted)


def changes(row: Row, present: PublicListsEntry) -> bool:
    """Tell whether sending the row would change what is there."""
    if row.comment is not UNSET and row.comment != present.comment:
        return True
    return row.expires is not UNSET and _moment(row.expires) != _moment(present.expires)


def _moment(value: datetime | UnsetType | str | None) -> datetime | None:
    """Return a time as it is stored: to the millisecond."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        return None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
