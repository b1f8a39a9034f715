"""A kind of entry: how it is read, its breadth check, its specificity and its lookup key."""

from collections.abc import Callable
from typing import NewType, Protocol

from msgspec import Struct

from mailwarden.errors import InvalidEntry
from mailwarden.lists.kinds.text import MAX_ENTRY, clean

Entry = NewType("Entry", str)
"""An entry in its one stored form."""


class BreadthCheck(Protocol):
    """Raises EntryTooBroad for an entry that covers what belongs to many."""

    def __call__(self, entry: str, *, lets_through: bool) -> None: ...


def never_too_broad(entry: str, *, lets_through: bool) -> None:
    """Accept the entry: no entry of this kind is too broad."""


def itself(entry: str) -> str:
    return entry


class Kind(Struct, frozen=True):
    """One way in which entries are written.

    `read` takes a cleaned text to the stored form or raises InvalidEntry; `check_breadth` raises EntryTooBroad;
    `specificity` orders entries of this kind that match one value; `key` is what a message's candidates are
    looked up by. Reading what was read, and so normalising, changes nothing the second time.
    """

    name: str
    form: str
    examples: tuple[tuple[str, str], ...]
    read: Callable[[str], str]
    specificity: Callable[[str], int]
    check_breadth: BreadthCheck = never_too_broad
    key: Callable[[str], str] = itself

    def spell(self, text: str) -> Entry:
        """Return the stored form without the breadth check, so that entries stored under older rules can be deleted."""
        entry = self.read(clean(text))
        if len(entry) > MAX_ENTRY:
            raise InvalidEntry(f"In its stored form an entry has at most {MAX_ENTRY:,} characters.")
        return Entry(entry)

    def normalise(self, text: str, *, lets_through: bool = False) -> Entry:
        """Return the stored form, or raise InvalidEntry or EntryTooBroad; a list that lets mail through is stricter."""
        entry = self.spell(text)
        self.check_breadth(entry, lets_through=lets_through)
        return entry
