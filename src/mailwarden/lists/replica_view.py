"""The replica's file as one process has it open: which lists have entries, seen anew whenever the writer committed."""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.errors import StorageUnavailable
from mailwarden.lists.kinds.networks import PrefixLengths
from mailwarden.lists.replica_file import ReplicaFolder, open_for_reading
from mailwarden.lists.replica_filter import ReplicaFilter, boot_id

LOOK_SECONDS = 0.05  # between two looks whether the replica has changed
_LISTS = "SELECT list_id, tenant, name, entries, prefixes, version FROM lists WHERE version > ?"


class ListState(Struct, frozen=True):
    """What is kept in memory of a list that has entries."""

    list_id: int
    name: str
    tenant: UUID | None
    entries: int
    version: int
    prefixes: PrefixLengths


_NONE: Mapping[str, ListState] = {}


class ReplicaView:
    """Made without touching the disk. Not for two threads at once."""

    def __init__(self, folder: Path, look: float = LOOK_SECONDS) -> None:
        self.folder = ReplicaFolder(folder)
        self.filter: ReplicaFilter | None = None
        self._look_seconds = look
        self._next_look = 0.0
        self._mark = (0, 0)
        self._file: sqlite3.Connection | None = None
        self._data_version = -1
        self._version = 0
        self._scopes: dict[UUID | None, dict[str, ListState]] = {}
        self._by_id: dict[int, ListState] = {}

    @property
    def mark(self) -> tuple[int, int]:
        """Return what differs once another file is read."""
        return self._mark

    @property
    def entries(self) -> int:
        return sum(state.entries for state in self._by_id.values())

    def look(self) -> None:
        """See whether the replica has changed, but not too often; raise StorageUnavailable where there is none."""
        now = time.monotonic()
        if now < self._next_look and self._file is not None:
            return
        mark = self.folder.mark()
        if mark != self._mark:
            self._open(mark)
        if self._file is None:
            raise StorageUnavailable("The lists have not been copied to this host yet.", retry_after=2)
        with self._guarded():
            (data_version,) = self._file.execute("PRAGMA data_version").fetchone()
            if data_version != self._data_version:
                self._load(self._file)
                self._data_version = data_version
        self._next_look = now + self._look_seconds

    def names(self, tenant: UUID | None) -> Mapping[str, ListState]:
        """Return the lists of one scope that have entries."""
        return self._scopes.get(tenant, _NONE)

    def states(self, tenant: UUID, list_name: str) -> list[ListState]:
        """Return the list as the tenant has it and as it is globally, where they have entries."""
        own, common = self.names(tenant).get(list_name), self.names(None).get(list_name)
        return [state for state in (own, common) if state is not None]

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend the file for statements that all see one state."""
        file = self._file
        assert file is not None
        with self._guarded():
            file.execute("BEGIN")
            try:
                yield file
            finally:
                file.execute("COMMIT")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.filter is not None:
            self.filter.close()
            self.filter = None
        self._mark = (0, 0)

    def _open(self, mark: tuple[int, int]) -> None:
        pointer = self.folder.pointer()
        if pointer is None:
            return
        path = self.folder.path / pointer.entries
        field = self.folder.path / pointer.filter if pointer.filter and pointer.boot == boot_id() else None
        try:
            with self._guarded():
                file = open_for_reading(path)
            bits = None if field is None else ReplicaFilter(field)
        except (StorageUnavailable, OSError) as error:
            if self.folder.mark() != mark:
                return  # replaced while we looked: the next look finds the new one
            raise StorageUnavailable("The lists of this host cannot be read.", retry_after=2) from error
        self.close()
        self._file, self.filter, self._mark = file, bits, mark
        self._version, self._data_version = 0, -1
        self._scopes, self._by_id = {}, {}

    def _load(self, file: sqlite3.Connection) -> None:
        """Take up the lists that changed since the last look."""
        for list_id, tenant, name, entries, prefixes, version in file.execute(_LISTS, (self._version,)).fetchall():
            owner = None if tenant is None else UUID(tenant)
            lengths = msgspec.json.decode(prefixes, type=PrefixLengths)
            state = ListState(list_id, name, owner, entries, version, lengths)
            known = self._by_id.pop(list_id, None)
            if known is not None and self._scopes[known.tenant].get(known.name) is known:
                del self._scopes[known.tenant][known.name]
            if entries:
                self._by_id[list_id] = state
                self._scopes.setdefault(owner, {})[name] = state
            self._version = max(self._version, version)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn an error of the file into one of ours, and tell the writer of a file that is damaged."""
        try:
            yield
        except sqlite3.Error as error:
            if not isinstance(error, sqlite3.OperationalError):
                self.folder.say_damaged()
            raise StorageUnavailable("The lists of this host cannot be read.", retry_after=2) from error
