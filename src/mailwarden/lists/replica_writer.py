"""Writes the replica: a whole copy into a file of its own, or the changes since into the one that counts.

All of it blocks, so it runs in one thread beside the loop. One process of a host writes; see WriterLock.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.errors import ListNotFound
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.kinds.networks import PrefixLengths
from mailwarden.lists.replica_file import FORMAT, Pointer, ReplicaFolder, WriterLock, open_for_writing
from mailwarden.lists.replica_filter import ReplicaFilter, boot_id, size_for
from mailwarden.lists.replica_rows import place_of

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
    """What became of some entries of a list: those that are there, and those that are not. No list: all are gone."""

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
        """Become the writer of this host, unless another process is; what that wrote last is read afresh."""
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
        present = sorted(
            (row.list_id, *place_of(kind_name, each.entry), epoch_of(each.expires), self._comments.place(each.comment))
            for each in change.present
        )
        if self._filter is not None:
            self._filter.add(row.list_id, (key for _, key, _, _, _ in present))
        file.executemany(_SET_ENTRY, present)
        known = file.execute("SELECT prefixes FROM lists WHERE list_id = ? AND entries > 0", (row.list_id,)).fetchone()
        lengths = msgspec.json.decode(known[0], type=PrefixLengths) if known else PrefixLengths((), ())
        if kind_name in NETWORK_KINDS:
            lengths = joined(lengths, PrefixLengths.of(each.entry for each in change.present))
        file.execute(_SET_LIST, list_values(row, lengths, self._version))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        assert self._file is not None
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield self._file
        except BaseException:
            self._file.execute("ROLLBACK")
            self.close_file()  # what memory knows of comments and versions was rolled back with it
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
