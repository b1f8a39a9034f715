"""A whole copy of all lists, built in a file of its own that counts only when it is complete."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from mailwarden.lists.kinds.networks import PrefixLengths
from mailwarden.lists.replica_file import FORMAT, Pointer, ReplicaFolder, create_file, finish_file
from mailwarden.lists.replica_filter import ReplicaFilter, boot_id, size_for
from mailwarden.lists.replica_rows import is_plain, place_of
from mailwarden.lists.replica_writer import (
    NETWORK_KINDS,
    Comments,
    ListRow,
    Position,
    epoch_of,
    joined,
    list_values,
)

DELIMITER, QUOTE = "\x01", "\x02"  # as in lines.py: no entry and no comment can hold them, so nothing is ever quoted
_FIRST_VERSION = 1
_ADD = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"

_Values = tuple[int, bytes, str, int | None, int | str]


class WholeCopy:
    """Takes lines of list_id, entry, expires and comment, sorted by the first two; blocks, so it runs in a thread."""

    def __init__(self, folder: ReplicaFolder, lists: Sequence[ListRow]) -> None:
        self.taken = 0
        self._folder = folder
        self._lists = {row.list_id: row for row in lists if row.kind_name is not None}
        self._kinds = {str(list_id): row.kind_name for list_id, row in self._lists.items()}
        self._prefixes: dict[int, PrefixLengths] = {}
        name = folder.new_name()
        self._name, self._filter_name = f"{name}.sqlite", f"{name}.bits"
        self._file: sqlite3.Connection | None = create_file(folder.path / self._name)
        self._comments = Comments(self._file)
        entries = sum(row.entries for row in lists)
        self._filter = ReplicaFilter.create(folder.path / self._filter_name, size_for(entries))
        self._file.execute("BEGIN")

    def take(self, lines: bytes) -> None:
        """Write whole lines."""
        assert self._file is not None
        of_list: list[str] = []
        current = ""
        for line in lines.decode().split("\n"):
            list_id = line.partition(DELIMITER)[0]
            if list_id != current:
                self._add(current, of_list)
                current, of_list = list_id, []
            of_list.append(line)
        self._add(current, of_list)

    def finish(self, position: Position) -> None:
        """Let the copy count from now on."""
        file = self._file
        assert file is not None
        rows = [
            list_values(row, self._prefixes.get(row.list_id, PrefixLengths((), ())), _FIRST_VERSION)
            for row in self._lists.values()
        ]
        file.executemany("INSERT INTO lists VALUES (?, ?, ?, ?, ?, ?)", rows)
        facts = (("format", str(FORMAT)), ("position", msgspec.json.encode(position).decode()))
        file.executemany("INSERT INTO facts VALUES (?, ?)", facts)
        file.execute("COMMIT")
        self._file = None
        finish_file(self._folder.path / self._name, file)
        self._filter.close()
        self._folder.point_to(Pointer(self._name, self._filter_name if boot_id() else "", boot_id()))
        self._folder.say_mended()

    def abandon(self) -> None:
        """Remove what was written, unless it counts already."""
        if self._file is None:
            return
        self._file.close()
        self._filter.close()
        for name in (self._name, self._filter_name):
            with suppress(OSError):
                (self._folder.path / name).unlink()

    def _add(self, number: str, lines: Sequence[str]) -> None:
        kind_name = self._kinds.get(number)
        if kind_name is None or self._file is None:
            return  # the empty line at the end, or a list that this version does not know
        list_id, place_comment = int(number), self._comments.place
        values: list[_Values] = []
        entries: list[str] = []
        plain = is_plain(kind_name)
        for line in lines:
            _, entry, expires, comment = line.split(DELIMITER)
            key, stored = (entry.encode(), "") if plain else place_of(kind_name, entry)
            values.append((list_id, key, stored, epoch_of(expires) if expires else None, place_comment(comment)))
            entries.append(entry)
        self._filter.add(list_id, [row[1] for row in values])
        self._file.executemany(_ADD, values)
        if kind_name in NETWORK_KINDS:
            known = self._prefixes.get(list_id, PrefixLengths((), ()))
            self._prefixes[list_id] = joined(known, PrefixLengths.of(entries))
        self.taken += len(values)
