"""The subjects of one list in one edition, ready to be met."""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from mailwarden.errors import InvalidEntry
from mailwarden.lists.kinds.subjects import SubjectMatcher, read_subject
from mailwarden.lists.replica_rows import Row

_FEW = 20  # so many are ready sooner than a thread is


class Subjects(Struct, frozen=True):
    """`rows` has the row of each entry, the entry itself in its second place."""

    edition: tuple[object, ...]
    matcher: SubjectMatcher
    rows: Mapping[str, Row]

    @classmethod
    def make(cls, edition: tuple[object, ...], rows: Sequence[Row]) -> "Subjects":
        by_entry = {row[1]: row for row in rows}
        try:
            return cls(edition, SubjectMatcher(by_entry), by_entry)
        except InvalidEntry:  # stored under other rules than today's: one such pattern must not disarm all others
            return cls(edition, SubjectMatcher(filter(_is_sound, by_entry)), by_entry)

    @classmethod
    async def make_beside(cls, edition: tuple[object, ...], rows: Sequence[Row]) -> "Subjects":
        """Make them ready in a thread where there are many."""
        if len(rows) <= _FEW:
            return cls.make(edition, rows)
        return await asyncio.to_thread(cls.make, edition, rows)


def _is_sound(entry: str) -> bool:
    try:
        return bool(read_subject(entry))
    except InvalidEntry:
        return False
