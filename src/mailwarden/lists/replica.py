"""The lists as guard meets them: a copy on this host's disk that is asked in well under a millisecond.

Whoever feeds it does so behind our back (`feed.py`); what is read here is what was committed last. The replica is not
empty before it was fed for the first time, it is unknown: every question then raises StorageUnavailable.
Security: looks up keys that strangers chose; they reach the file as values alone, and each look is bounded.
"""

import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from mailwarden.errors import StorageUnavailable
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.hits import HitCounter
from mailwarden.lists.kinds.networks import PrefixLengths
from mailwarden.lists.precedence import Match
from mailwarden.lists.replica_rows import Row, entry_at, keys_of
from mailwarden.lists.replica_subjects import Subjects
from mailwarden.lists.replica_view import LOOK_SECONDS, ListState, ReplicaView

_MOST_KEYS = 256  # in one statement
_KEPT_SUBJECTS = 256  # lists of subjects that stay ready

_FIND = "SELECT key, entry, expires, comment FROM entries WHERE list_id = ? AND key IN ({})"
_ALL = "SELECT key, entry, expires, comment FROM entries WHERE list_id = ? LIMIT ?"
_COMMENT = "SELECT comment FROM comments WHERE comment_id = ?"


class Replica:
    """Reads the replica in a folder; made without touching it, so that guard starts whatever is there."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time, look: float = LOOK_SECONDS) -> None:
        self.hits = HitCounter()
        self._view = ReplicaView(folder, look)
        self._clock = clock
        self._subjects: OrderedDict[int, Subjects] = OrderedDict()

    @property
    def loaded(self) -> bool:
        """Tell whether there is a state to answer from, however old."""
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
        found = [state.prefixes for state in self._view.states(tenant, list_name)]
        if len(found) == 1:
            return found[0]
        ipv4 = {length for lengths in found for length in lengths.ipv4}
        ipv6 = {length for lengths in found for length in lengths.ipv6}
        return PrefixLengths(tuple(sorted(ipv4, reverse=True)), tuple(sorted(ipv6, reverse=True)))

    def match(self, tenant: UUID, wanted: Mapping[str, Iterable[str]]) -> tuple[Match, ...]:
        """Return the entries that are met: list by list, the tenant's before the global ones, as the candidates stand.

        `wanted` names the candidate keys of each list, as its kind makes them; for subjects, the subjects themselves.
        """
        self._view.look()
        matches: list[Match] = []
        with self._view.reading() as file:
            for list_name, candidates in wanted.items():
                states = self._view.states(tenant, list_name)
                if not states:
                    continue
                kind_name = find_list(list_name).kind_name
                if kind_name == "subject":
                    texts = list(candidates)
                    for state in states:
                        matches.extend(self._find_subjects(file, state, texts))
                else:
                    keys = keys_of(kind_name, candidates)
                    for state in states:
                        matches.extend(self._find(file, state, keys))
        return tuple(matches)

    def entries_of(self, tenant: UUID, list_name: str, limit: int) -> list[str]:
        """Return at most `limit` entries of a list, the tenant's before the global ones."""
        self._view.look()
        kind_name = find_list(list_name).kind_name
        found: dict[str, None] = {}
        with self._view.reading() as file:
            for state in self._view.states(tenant, list_name):
                rows = self._alive(file.execute(_ALL, (state.list_id, limit)).fetchall())
                found.update((entry_at(kind_name, key, entry), None) for key, entry, _, _ in rows)
        return list(found)[:limit]

    def note_hits(self, matches: Iterable[Match]) -> None:
        """Count these entries as met; the feed writes the counts down."""
        for match in matches:
            state = self._view.names(match.tenant).get(match.list_name)
            if state is not None:
                self.hits.note(state.list_id, match.entry)

    async def prepare(self, tenant: UUID) -> None:
        """Make ready, off the loop, what takes long to make ready: the patterns of the tenant's subjects.

        `match` does so by itself where this was not called, and then the loop waits for it.
        """
        self._view.look()
        for state in self._view.states(tenant, "subject-block"):
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
            found: dict[bytes, list[Row]] = {}
            # The number of values is a power of two, so that the statements are few and stay prepared.
            padded = [*some, *[some[-1]] * ((1 << (len(some) - 1).bit_length()) - len(some))]
            statement = _FIND.format(",".join("?" * len(padded)))
            for row in self._alive(file.execute(statement, (state.list_id, *padded)).fetchall()):
                found.setdefault(row[0], []).append(row)
            for key in some if found else ():
                for _, stored, _, comment in found.get(key, ()):
                    entry = entry_at(find_list(state.name).kind_name, key, stored)
                    yield Match(state.name, entry, state.tenant, _comment(file, comment))

    def _find_subjects(self, file: sqlite3.Connection, state: ListState, texts: Iterable[str]) -> Iterator[Match]:
        if not self._is_ready(state):
            self._keep(state, Subjects.make(self._edition(state), _subject_rows(file, state)))
        subjects = self._subjects[state.list_id]
        found = dict.fromkeys(entry for text in texts for entry in subjects.matcher.find(text))
        for _, entry, _, comment in self._alive([subjects.rows[entry] for entry in found]):
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
