"""Writes the replica: a full copy into a new file, or changes into the current one.

All calls block, so they run in one thread beside the event loop. One process of a host writes; see WriterLock.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.database.pool import COPY_DELIMITER
from mailwarden.errors import ListNotFound
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.kinds.networks import PrefixLengths
from mailwarden.lists.replica.file import (
    FORMAT,
    Pointer,
    ReplicaFilter,
    ReplicaFolder,
    WriterLock,
    boot_id,
    create_file,
    finish_file,
    is_plain,
    open_for_writing,
    place_of,
    size_for,
)

MAX_COMMENTS = 65_536  # kept once each; further ones lie beside their entries
NETWORK_KINDS = frozenset({"ip", "domain-or-ip"})
_SCANNED = 20_000

_GET_FACT = "SELECT value FROM facts WHERE name = ?"
_SET_FACT = "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_SET_LIST = """
INSERT INTO lists VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (list_id) DO UPDATE SET tenant = excluded.tenant,
name = excluded.name, entries = excluded.entries, prefixes = excluded.prefixes, version = excluded.version
"""
_SET_ENTRY = """
INSERT INTO entries VALUES (?, ?, ?, ?, ?)
ON CONFLICT (list_id, key, entry) DO UPDATE SET expires = excluded.expires, comment = excluded.comment
"""
_DELETE_ENTRY = "DELETE FROM entries WHERE list_id = ? AND key = ? AND entry = ?"

_FIRST_VERSION = 1
_ADD = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"

_Values = tuple[int, bytes, str, int | None, int | str]
_place = itemgetter(1, 2)


class Position(Struct, frozen=True):
    """How far a replica has come: the database it was copied from, what it has seen of it, and when, by its clock."""

    source: str
    snapshot: str
    moment: float


class ListRow(Struct, frozen=True):
    """A list as PostgreSQL has it."""

    list_id: int
    tenant: UUID | None
    name: str
    entries: int

    @property
    def kind_name(self) -> str | None:
        """Return the kind, or None for a list that this version does not know."""
        try:
            return find_list(self.name).kind_name
        except ListNotFound:
            return None


class EntryRow(Struct, frozen=True):
    """An entry as PostgreSQL has it: its expiry as text, its comment as a JSON string."""

    entry: str
    expires: str | None
    comment: str


class ListChange(Struct, frozen=True):
    """Changed entries of a list: those present and those absent. Without a row the list is gone."""

    list_id: int
    row: ListRow | None
    present: Sequence[EntryRow] = ()
    absent: Sequence[str] = ()


class Comments:
    """The comments that many entries share, by their text as PostgreSQL has it."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file
        self._numbers: dict[str, int] = {}
        self._last = 0

    def load(self) -> None:
        for number, comment in self._file.execute("SELECT comment_id, comment FROM comments"):
            self._numbers[msgspec.json.encode(comment).decode()] = number
            self._last = max(self._last, number)

    def place(self, literal: str) -> int | str:
        """Return what lies beside the entry: a number, or the text where there are too many different ones."""
        number = self._numbers.get(literal)
        if number is not None:
            return number
        comment = msgspec.json.decode(literal, type=str)
        if not comment or self._last >= MAX_COMMENTS:
            return comment
        self._last += 1
        self._file.execute("INSERT INTO comments VALUES (?, ?)", (self._last, comment))
        self._numbers[literal] = self._last
        return self._last


class ReplicaWriter:
    def __init__(self, path: Path) -> None:
        self.folder = ReplicaFolder(path)
        self._lock: WriterLock | None = None
        self._file: sqlite3.Connection | None = None
        self._filter: ReplicaFilter | None = None
        self._comments: Comments | None = None
        self._version = 0

    def take(self) -> bool:
        """Become the writer of this host, unless another process is; return whether this process is the writer."""
        if self._lock is None:
            self.folder.prepare()
            self._lock = WriterLock(self.folder)
        return self._lock.take()

    def position(self) -> Position | None:
        """Return how far the file that counts has come; None where a whole copy is needed."""
        if self.folder.damaged:
            return None
        try:
            if self._file is None and not self._open():
                return None
            assert self._file is not None
            row = self._file.execute(_GET_FACT, ("position",)).fetchone()
            return None if row is None else msgspec.json.decode(row[0], type=Position)
        except (sqlite3.DatabaseError, msgspec.DecodeError, OSError):
            self.close_file()
            return None

    def apply(self, changes: Iterable[ListChange]) -> None:
        """Write what became of entries, all of it or nothing."""
        with self._writing() as file:
            self._version += 1
            for change in changes:
                if change.row is None or change.row.kind_name is None:
                    file.execute("DELETE FROM entries WHERE list_id = ?", (change.list_id,))
                    statement = "UPDATE lists SET entries = 0, version = ? WHERE list_id = ?"
                    file.execute(statement, (self._version, change.list_id))
                else:
                    self._apply(file, change, change.row, change.row.kind_name)

    def advance(self, position: Position) -> None:
        """Remember that all changes up to there are written."""
        with self._writing() as file:
            file.execute(_SET_FACT, ("position", msgspec.json.encode(position).decode()))

    def refresh_filter(self) -> None:
        """Make the field of bits anew where this boot of the host has none, or where it has become too small."""
        file, pointer = self._file, self.folder.pointer()
        if file is None or pointer is None or not boot_id():
            return
        entries: int = file.execute("SELECT coalesce(sum(entries), 0) FROM lists").fetchone()[0]
        if self._filter is not None and not self._filter.is_too_small_for(entries):
            return
        name = f"{self.folder.new_name()}.bits"
        fresh = ReplicaFilter.create(self.folder.path / name, size_for(entries))
        rows = file.execute("SELECT list_id, key FROM entries")
        while some := rows.fetchmany(_SCANNED):
            for list_id, key in some:
                fresh.add(list_id, (key,))
        old, self._filter = self._filter, fresh
        if old is not None:
            old.close()
        self.folder.point_to(Pointer(pointer.entries, name, boot_id()))

    def close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._filter is not None:
            self._filter.close()
            self._filter = None

    def close(self) -> None:
        self.close_file()
        if self._lock is not None:
            self._lock.release()

    def _open(self) -> bool:
        pointer = self.folder.pointer()
        if pointer is None:
            return False
        self._file = open_for_writing(self.folder.path / pointer.entries)
        row = self._file.execute(_GET_FACT, ("format",)).fetchone()
        if row is None or row[0] != str(FORMAT):
            self.close_file()
            return False
        if pointer.filter and pointer.boot == boot_id():
            self._filter = ReplicaFilter(self.folder.path / pointer.filter, writing=True)
        (self._version,) = self._file.execute("SELECT coalesce(max(version), 0) FROM lists").fetchone()
        self._comments = Comments(self._file)
        self._comments.load()
        return True

    def _apply(self, file: sqlite3.Connection, change: ListChange, row: ListRow, kind_name: str) -> None:
        assert self._comments is not None
        absent = [place_of(kind_name, entry) for entry in change.absent]
        file.executemany(_DELETE_ENTRY, ((row.list_id, *place) for place in absent))
        list_id, place_comment, plain = row.list_id, self._comments.place, is_plain(kind_name)
        present: list[_Values] = []
        for entry_row in change.present:
            key, stored = (entry_row.entry.encode(), "") if plain else place_of(kind_name, entry_row.entry)
            expires = epoch_of(entry_row.expires) if entry_row.expires else None
            present.append((list_id, key, stored, expires, place_comment(entry_row.comment)))
        present.sort(key=_place)
        if self._filter is not None:
            self._filter.add(list_id, [values[1] for values in present])
        file.executemany(_SET_ENTRY, present)
        prefixes_row = file.execute(
            "SELECT prefixes FROM lists WHERE list_id = ? AND entries > 0", (row.list_id,)
        ).fetchone()
        lengths = msgspec.json.decode(prefixes_row[0], type=PrefixLengths) if prefixes_row else PrefixLengths((), ())
        if kind_name in NETWORK_KINDS:
            lengths = joined(lengths, PrefixLengths.of(entry_row.entry for entry_row in change.present))
        file.execute(_SET_LIST, list_values(row, lengths, self._version))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        assert self._file is not None
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield self._file
        except BaseException:
            self._file.execute("ROLLBACK")
            self.close_file()  # drops the cached comments and versions, which were rolled back
            raise
        self._file.execute("COMMIT")


def epoch_of(expires: str | None) -> int | None:
    """Return an expiry in milliseconds."""
    return None if not expires else int(datetime.fromisoformat(expires).timestamp() * 1_000)


def joined(one: PrefixLengths, other: PrefixLengths) -> PrefixLengths:
    ipv4, ipv6 = {*one.ipv4, *other.ipv4}, {*one.ipv6, *other.ipv6}
    return PrefixLengths(tuple(sorted(ipv4, reverse=True)), tuple(sorted(ipv6, reverse=True)))


def list_values(row: ListRow, lengths: PrefixLengths, version: int) -> tuple[object, ...]:
    tenant = None if row.tenant is None else str(row.tenant)
    return row.list_id, tenant, row.name, row.entries, msgspec.json.encode(lengths).decode(), version


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
        entries = sum(row.entries for row in lists)
        self._filter = ReplicaFilter.create(folder.path / self._filter_name, size_for(entries))
        self._file: sqlite3.Connection | None = None
        try:
            self._file = create_file(folder.path / self._name)
            self._comments = Comments(self._file)
            self._file.execute("BEGIN")
        except sqlite3.Error:
            self._remove()
            raise

    def take(self, lines: bytes) -> None:
        """Write whole lines."""
        assert self._file is not None
        of_list: list[str] = []
        current = ""
        for line in lines.decode().split("\n"):
            list_id = line.partition(COPY_DELIMITER)[0]
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
        if self._file is not None:
            self._remove()

    def _remove(self) -> None:
        if self._file is not None:
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
            _, entry, expires, comment = line.split(COPY_DELIMITER)
            key, stored = (entry.encode(), "") if plain else place_of(kind_name, entry)
            values.append((list_id, key, stored, epoch_of(expires) if expires else None, place_comment(comment)))
            entries.append(entry)
        self._filter.add(list_id, [row[1] for row in values])
        self._file.executemany(_ADD, values)
        if kind_name in NETWORK_KINDS:
            earlier_lengths = self._prefixes.get(list_id, PrefixLengths((), ()))
            self._prefixes[list_id] = joined(earlier_lengths, PrefixLengths.of(entries))
        self.taken += len(values)
