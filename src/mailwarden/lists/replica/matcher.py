"""Looks up list entries in the replica on this host's disk, in well under a millisecond.

A reader sees the last commit of the writer (`feed.py`). A replica that was never fed is not empty but unknown: every
lookup raises StorageUnavailable.
Security: looks up keys that senders choose; they reach SQLite as values only, and each lookup is bounded.
"""

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.errors import InvalidEntry, StorageUnavailable
from mailwarden.lists.catalogue import CATALOGUE, find_list
from mailwarden.lists.kinds.networks import PrefixLengths
from mailwarden.lists.kinds.subjects import SubjectMatcher, read_subject
from mailwarden.lists.matching import Match
from mailwarden.lists.replica.file import (
    ReplicaFilter,
    ReplicaFolder,
    Row,
    boot_id,
    entry_at,
    lookup_keys,
    open_for_reading,
)

MAX_COUNTED = 20_000  # different entries between two writings; further ones go uncounted

_FEW = 20  # below it a thread costs more than the work

LOOK_SECONDS = 0.05  # between two looks whether the replica has changed
_LISTS = "SELECT list_id, tenant, name, entries, prefixes, version FROM lists WHERE version > ?"

_BY_TEXT = tuple(definition.name for definition in CATALOGUE if definition.kind.matches_text)
_MOST_KEYS = 256  # in one statement
_KEPT_SUBJECTS = 256  # lists of subjects that stay ready

_FIND = "SELECT key, entry, expires, comment FROM entries WHERE list_id = ? AND key IN ({})"
_ALL = "SELECT key, entry, expires, comment FROM entries WHERE list_id = ? LIMIT ?"
_COMMENT = "SELECT comment FROM comments WHERE comment_id = ?"


class Hit(Struct):
    """How often one entry matched since the last write, and when last, in seconds."""

    count: int
    last: float


Hits = Mapping[tuple[int, str], Hit]
"""By the list's number and the entry."""


class HitCounter:
    def __init__(self, limit: int = MAX_COUNTED) -> None:
        self._limit = limit
        self._hits: dict[tuple[int, str], Hit] = {}
        self.lost = 0

    def note(self, list_id: int, entry: str) -> None:
        hit = self._hits.get((list_id, entry))
        if hit is not None:
            hit.count += 1
            hit.last = time.time()
        elif len(self._hits) < self._limit:
            self._hits[list_id, entry] = Hit(1, time.time())
        else:
            self.lost += 1

    def take(self) -> Hits:
        """Return what was counted, and begin anew."""
        taken, self._hits = self._hits, {}
        return taken

    def give_back(self, hits: Hits) -> None:
        """Count what could not be written once more."""
        for key, hit in hits.items():
            counted_hit = self._hits.get(key)
            if counted_hit is not None:
                counted_hit.count += hit.count
            elif len(self._hits) < self._limit:
                self._hits[key] = hit
            else:
                self.lost += hit.count


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


class ListState(Struct, frozen=True):
    """The in-memory state of a list that has entries."""

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
            old_state = self._by_id.pop(list_id, None)
            if old_state is not None and self._scopes[old_state.tenant].get(old_state.name) is old_state:
                del self._scopes[old_state.tenant][old_state.name]
            if entries:
                self._by_id[list_id] = state
                self._scopes.setdefault(owner, {})[name] = state
            self._version = max(self._version, version)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Raise StorageUnavailable for an SQLite error, and mark a damaged file for the writer."""
        try:
            yield
        except sqlite3.Error as error:
            if not isinstance(error, sqlite3.OperationalError):
                self.folder.say_damaged()
            raise StorageUnavailable("The lists of this host cannot be read.", retry_after=2) from error


class Replica:
    """Reads the replica in a folder; the constructor does no I/O, so that guard starts without one."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time, look: float = LOOK_SECONDS) -> None:
        self.hits = HitCounter()
        self._view = ReplicaView(folder, look)
        self._clock = clock
        self._subjects: OrderedDict[int, Subjects] = OrderedDict()

    @property
    def loaded(self) -> bool:
        """Return whether there is a replica, however old."""
        try:
            self._view.look()
        except StorageUnavailable:
            return False
        return True

    @property
    def lag_seconds(self) -> float | None:
        """Return how long ago the replica was last known to be all that was committed; None where it never was."""
        return self._view.folder.lag_seconds()

    @property
    def entries(self) -> int:
        """Return how many entries all lists of all scopes have together."""
        return self._view.entries

    def in_use(self, tenant: UUID) -> frozenset[str]:
        """Return the names of the lists that have entries in the tenant's or the global scope."""
        self._view.look()
        return frozenset((*self._view.names(tenant), *self._view.names(None)))

    def prefix_lengths(self, tenant: UUID, list_name: str) -> PrefixLengths:
        """Return the lengths of the networks in a list, of both scopes, the longest first."""
        self._view.look()
        scope_lengths = [state.prefixes for state in self._view.states(tenant, list_name)]
        if len(scope_lengths) == 1:
            return scope_lengths[0]
        ipv4 = {length for lengths in scope_lengths for length in lengths.ipv4}
        ipv6 = {length for lengths in scope_lengths for length in lengths.ipv6}
        return PrefixLengths(tuple(sorted(ipv4, reverse=True)), tuple(sorted(ipv6, reverse=True)))

    def match(self, tenant: UUID, keys_by_list: Mapping[str, Iterable[str]]) -> tuple[Match, ...]:
        """Return the matching entries: list by list, the tenant's before the global ones, in candidate order.

        `keys_by_list` names the candidate keys of each list, as its kind makes them; for subjects, the subjects
        themselves.
        """
        self._view.look()
        matches: list[Match] = []
        with self._view.reading() as file:
            for list_name, candidates in keys_by_list.items():
                states = self._view.states(tenant, list_name)
                if not states:
                    continue
                kind = find_list(list_name).kind
                if kind.matches_text:
                    texts = list(candidates)
                    for state in states:
                        matches.extend(self._find_subjects(file, state, texts))
                else:
                    keys = lookup_keys(kind.name, candidates)
                    for state in states:
                        matches.extend(self._find(file, state, keys))
        return tuple(matches)

    def entries_of(self, tenant: UUID, list_name: str, limit: int) -> list[str]:
        """Return at most `limit` entries of a list, the tenant's before the global ones."""
        self._view.look()
        kind_name = find_list(list_name).kind_name
        entries: dict[str, None] = {}
        with self._view.reading() as file:
            for state in self._view.states(tenant, list_name):
                rows = self._alive(file.execute(_ALL, (state.list_id, limit)).fetchall())
                entries.update((entry_at(kind_name, key, entry), None) for key, entry, _, _ in rows)
        return list(entries)[:limit]

    def note_hits(self, matches: Iterable[Match]) -> None:
        """Count hits of these entries; the feed writes the counts to PostgreSQL."""
        for match in matches:
            state = self._view.names(match.tenant).get(match.list_name)
            if state is not None:
                self.hits.note(state.list_id, match.entry)

    async def prepare(self, tenant: UUID) -> None:
        """Make ready, off the loop, what takes long to make ready: the patterns of the tenant's subjects.

        `match` does so by itself where this was not called, and then the loop waits for it.
        """
        self._view.look()
        for state in (state for name in _BY_TEXT for state in self._view.states(tenant, name)):
            if not self._is_ready(state):
                with self._view.reading() as file:
                    rows = _subject_rows(file, state)
                self._keep(state, await Subjects.make_beside(self._edition(state), rows))

    def close(self) -> None:
        self._view.close()

    def _find(self, file: sqlite3.Connection, state: ListState, keys: Sequence[bytes]) -> Iterator[Match]:
        if self._view.filter is not None:
            keys = self._view.filter.possible(state.list_id, keys)
        for start in range(0, len(keys), _MOST_KEYS):
            some = keys[start : start + _MOST_KEYS]
            rows_by_key: dict[bytes, list[Row]] = {}
            # The number of values is a power of two, so that the statements are few and stay prepared.
            padded = [*some, *[some[-1]] * ((1 << (len(some) - 1).bit_length()) - len(some))]
            statement = _FIND.format(",".join("?" * len(padded)))
            for row in self._alive(file.execute(statement, (state.list_id, *padded)).fetchall()):
                rows_by_key.setdefault(row[0], []).append(row)
            for key in some if rows_by_key else ():
                for _, stored, _, comment in rows_by_key.get(key, ()):
                    entry = entry_at(find_list(state.name).kind_name, key, stored)
                    yield Match(state.name, entry, state.tenant, _comment(file, comment))

    def _find_subjects(self, file: sqlite3.Connection, state: ListState, texts: Iterable[str]) -> Iterator[Match]:
        if not self._is_ready(state):
            self._keep(state, Subjects.make(self._edition(state), _subject_rows(file, state)))
        subjects = self._subjects[state.list_id]
        matched_entries = dict.fromkeys(entry for text in texts for entry in subjects.matcher.find(text))
        for _, entry, _, comment in self._alive([subjects.rows[entry] for entry in matched_entries]):
            yield Match(state.name, entry, state.tenant, _comment(file, comment))

    def _is_ready(self, state: ListState) -> bool:
        kept = self._subjects.get(state.list_id)
        if kept is None or kept.edition != self._edition(state):
            return False
        self._subjects.move_to_end(state.list_id)
        return True

    def _keep(self, state: ListState, subjects: Subjects) -> None:
        self._subjects[state.list_id] = subjects
        if len(self._subjects) > _KEPT_SUBJECTS:
            self._subjects.popitem(last=False)

    def _edition(self, state: ListState) -> tuple[object, ...]:
        return (*self._view.mark, state.version)

    def _alive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the rows that have not expired."""
        if not rows:
            return rows
        now = self._clock() * 1_000
        return [row for row in rows if row[2] is None or row[2] > now]


def _subject_rows(file: sqlite3.Connection, state: ListState) -> list[Row]:
    rows = file.execute(_ALL, (state.list_id, find_list(state.name).max_size_global)).fetchall()
    return [(key, entry_at("subject", key, entry), expires, comment) for key, entry, expires, comment in rows]


def _comment(file: sqlite3.Connection, comment: int | str) -> str:
    if isinstance(comment, str):
        return comment
    row = file.execute(_COMMENT, (comment,)).fetchone()
    return "" if row is None else str(row[0])
