"""The list of messages: messages of one campaign on a page of results are one entry. Pure.

Grouping does not change the search: entries stand in the order of their first message, and pages are those of the
search, so that a campaign can have an entry on several pages.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from mailwarden.history.store import Cursor, Row

SEPARATOR = "."


class Entry(Struct, frozen=True):
    """One entry of the list: a message, or the messages of a campaign in the order of the search."""

    rows: tuple[Row, ...]

    @property
    def face(self) -> Row:
        """The message that stands for the others: the first of them in the order of the search."""
        return self.rows[0]

    @property
    def is_group(self) -> bool:
        return len(self.rows) > 1

    @property
    def recipients(self) -> int:
        return len({recipient.lower() for row in self.rows for recipient in row.recipients})

    @property
    def tenants(self) -> int:
        return len({row.tenant for row in self.rows})

    @property
    def value(self) -> str:
        """The messages of the entry as the checkbox sends them, see `read_rows`."""
        return SEPARATOR.join(row.place for row in self.rows)


def entries_of(rows: Sequence[Row], *, grouped: bool = True) -> tuple[Entry, ...]:
    """Return the rows as entries; those of one campaign become one, at the place of the first."""
    if not grouped:
        return tuple(Entry((row,)) for row in rows)
    found: dict[UUID | Cursor, list[Row]] = {}
    for row in rows:
        found.setdefault(row.campaign or Cursor.of(row), []).append(row)
    return tuple(Entry(tuple(each)) for each in found.values())


def read_rows(values: Sequence[str]) -> tuple[Cursor, ...]:
    """Return the messages of ticked checkboxes without duplicates, or raise ValueError."""
    places = (each for value in values for each in value.split(SEPARATOR))
    return tuple(dict.fromkeys(map(Cursor.parse, places)))
