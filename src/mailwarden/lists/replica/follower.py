"""Feeds this host's replica from PostgreSQL: a full copy first, then each change within a second.

A replica stores the snapshot that it has read, not the highest change number: everything that a later snapshot sees
besides is new, in any order of transactions, and no open transaction delays it. Of the guards that share a folder one
writes, and another takes over when it ends. While the database is unavailable the replica stays as it is. Each guard
writes its hit counts to PostgreSQL.
"""

import asyncio
import math
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import ParamSpec, TypeVar, cast
from uuid import UUID

from mailwarden.database.pool import EVERYTHING, Connection, Database, Row, copy_lines, scoped
from mailwarden.errors import StorageUnavailable
from mailwarden.lists.change_log import KEPT_DAYS
from mailwarden.lists.replica.matcher import Hits, Replica
from mailwarden.lists.replica.writer import (
    EntryRow,
    ListChange,
    ListRow,
    Position,
    ReplicaWriter,
    WholeCopy,
)
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import end_tasks

KEPT_HOURS = 48  # a replica that is older is copied again
PAGE = 200  # changes, of at most 500 entries each but for imports
PAGE_ENTRIES = 100_000  # after so many a page ends early
_PURGED = 5_000
_HITS = 500

_HEAD = """
SELECT pg_current_snapshot()::text AS snapshot, extract(epoch FROM now())::float8 AS moment,
       (SELECT system_identifier FROM pg_control_system())
       || '/' || ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
       || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
       || '/' || 'lists'::regclass::oid AS source -- a restored backup has other tables in the same database
"""
_LISTS = "SELECT list_id, tenant, name, entries FROM lists WHERE entries > 0"
_SOME_LISTS = "SELECT list_id, tenant, name, entries FROM lists WHERE list_id = ANY ($1::integer[])"
_COPY = "SELECT list_id, entry, expires, comment FROM list_entries ORDER BY list_id, entry"
_CHANGES = """
SELECT change, transaction::text AS transaction, list_id, entries FROM (
    SELECT *, sum(touched) OVER (ORDER BY transaction, change) - touched AS before FROM (
        SELECT change, transaction, list_id, entries, touched FROM list_changes
        WHERE transaction >= pg_snapshot_xmin($1::text::pg_snapshot)
          AND NOT pg_visible_in_snapshot(transaction, $1::text::pg_snapshot)
          AND (transaction, change) > ($2::text::xid8, $3::bigint)
        ORDER BY transaction, change LIMIT $4
    ) AS page
) AS summed WHERE before < $5 ORDER BY transaction, change
"""
# One row a list: the driver takes longer for a row than for an element of an array.
_PRESENT = """
SELECT given.list_id, array_agg(kept.entry) AS entries, array_agg(kept.expires) AS expiries,
       array_agg(kept.comment) AS comments
FROM unnest($1::integer[], $2::text[]) AS given (list_id, entry) CROSS JOIN LATERAL (
    SELECT entry, expires, comment FROM list_entries
    WHERE list_id = given.list_id AND entry = given.entry OFFSET 0
) AS kept GROUP BY given.list_id
"""
# Reads the oldest only, and deletes those beyond the retention.
_PURGE = """
WITH oldest AS (SELECT change FROM list_changes ORDER BY change LIMIT $1)
DELETE FROM list_changes USING oldest
WHERE list_changes.change = oldest.change AND changed < now() - make_interval(days => $2)
"""
# Locked in the order of all other writers, to avoid deadlocks.
_WRITE_HITS = """
WITH locked AS MATERIALIZED (
    SELECT list_id, entry, given.hits, given.last_hit
    FROM list_entries JOIN unnest($1::integer[], $2::text[], $3::bigint[], $4::text[])
         AS given (list_id, entry, hits, last_hit) USING (list_id, entry)
    ORDER BY list_id, entry FOR UPDATE OF list_entries
)
UPDATE list_entries AS kept
SET hits = kept.hits + locked.hits, last_hit = greatest(kept.last_hit, locked.last_hit)
FROM locked WHERE kept.list_id = locked.list_id AND kept.entry = locked.entry
"""

INTERVAL = 0.3
HITS_INTERVAL = 5.0
PURGE_INTERVAL = 3_600.0
COPY_SECONDS = 3_600.0
STALL_SECONDS = 60.0  # a copy of which nothing arrives for so long is given up
PROGRESS_SECONDS = 5.0  # between two lines in the log
RETRY_SECONDS = 5.0  # after a disk that failed
_CHUNK = 1 << 20

P = ParamSpec("P")
T = TypeVar("T")

_log = get_logger("lists.feed")


class Snapshot:
    """One state of all lists."""

    def __init__(self, connection: Connection, position: Position) -> None:
        self.position = position
        self._connection = connection

    async def lists(self) -> list[ListRow]:
        return [_list_row(row) for row in await self._connection.fetch(_LISTS)]

    async def copy(self, sink: Callable[[bytes], Awaitable[None]]) -> None:
        """Give the lines of all entries to the sink; see WholeCopy."""
        await copy_lines(self._connection, _COPY, sink)

    async def changes_since(self, position: Position) -> AsyncIterator[list[ListChange]]:
        """Yield the changes that a replica at that position lacks, page by page."""
        transaction, change = "0", 0
        while True:
            rows = await self._connection.fetch(_CHANGES, position.snapshot, transaction, change, PAGE, PAGE_ENTRIES)
            if not rows:
                return
            touched: dict[int, set[str]] = {}
            for row in rows:
                touched.setdefault(cast("int", row["list_id"]), set()).update(cast("Sequence[str]", row["entries"]))
            yield await self._look_at(touched)
            transaction, change = cast("str", rows[-1]["transaction"]), cast("int", rows[-1]["change"])

    async def _look_at(self, touched: dict[int, set[str]]) -> list[ListChange]:
        lists = {row.list_id: row for row in map(_list_row, await self._connection.fetch(_SOME_LISTS, [*touched]))}
        list_ids = [list_id for list_id in lists for _ in touched[list_id]]
        entries = [entry for list_id in lists for entry in sorted(touched[list_id])]
        present: dict[int, list[EntryRow]] = {}
        for row in await self._connection.fetch(_PRESENT, list_ids, entries) if entries else ():
            columns = (cast("Sequence[str]", row[column]) for column in ("entries", "expiries", "comments"))
            present[cast("int", row["list_id"])] = list(map(EntryRow, *columns))
        changes = []
        for list_id, names in touched.items():
            entry_rows = present.get(list_id, [])
            absent = sorted(names - {entry_row.entry for entry_row in entry_rows})
            changes.append(ListChange(list_id, lists.get(list_id), entry_rows, absent))
        return changes


@asynccontextmanager
async def snapshot(database: Database) -> AsyncIterator[Snapshot]:
    """Open one state of all lists, which stands still for the whole block."""
    async with database.connection() as connection, scoped(connection, EVERYTHING, snapshot=True):
        head = await connection.fetchrow(_HEAD)
        assert head is not None
        position = Position(cast("str", head["source"]), cast("str", head["snapshot"]), cast("float", head["moment"]))
        yield Snapshot(connection, position)


def can_follow(replica_position: Position, now: Position) -> bool:
    """Return whether all changes since a position are still stored, on the same timeline of the same database."""
    rewound = int(replica_position.snapshot.partition(":")[0]) > int(now.snapshot.split(":")[1])
    aged = now.moment - replica_position.moment > (KEPT_HOURS - 1) * 3_600
    return replica_position.source == now.source and not rewound and not aged


async def purge_changes(database: Database) -> int:
    """Delete the changes that are too old to follow or to undo; return how many."""
    purged = 0
    while True:
        async with database.connection() as connection:
            done = await connection.execute(_PURGE, _PURGED, KEPT_DAYS)
        count = int(done.rpartition(" ")[2])
        purged += count
        if count < _PURGED:
            return purged


async def write_hits(database: Database, hits: Hits) -> Hits:
    """Add the hits to their entries; return those not written because the database is unavailable."""
    waiting = iter(sorted(hits.items()))
    while some := dict(islice(waiting, _HITS)):
        try:
            async with database.connection() as connection, scoped(connection, EVERYTHING):
                await connection.execute(
                    _WRITE_HITS, [key[0] for key in some], [key[1] for key in some],
                    [hit.count for hit in some.values()], [_moment(hit.last) for hit in some.values()],
                )  # fmt: skip
        except StorageUnavailable:
            return {**some, **dict(waiting)}
    return {}


def _list_row(row: Row) -> ListRow:
    return ListRow(
        cast("int", row["list_id"]),
        cast("UUID | None", row["tenant"]),
        cast("str", row["name"]),
        cast("int", row["entries"]),
    )


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class DiskFailed(Exception):
    """The replica could not be written."""


class Follower:
    """Keeps one replica folder up to date. `copies` is a connection whose statements may take as long as a copy."""

    def __init__(self, folder: Path, replica: Replica, database: Database, copies: Database, metrics: Metrics) -> None:
        self._replica = replica
        self._writer = ReplicaWriter(folder)
        self._database = database
        self._copies = copies
        self._thread = ThreadPoolExecutor(1, "replica")
        self._tasks: list[asyncio.Task[None]] = []
        self._tried = asyncio.Event()
        self._next_purge = 0.0
        self._away = False
        self._stopped = False
        metrics.gauge("lists_loaded", "Whether there are lists to scan with.").set_function(lambda: replica.loaded)
        metrics.gauge("lists_lag_seconds", "Age of the lists that scans go by.").set_function(
            lambda: math.inf if (lag := replica.lag_seconds) is None else lag
        )
        metrics.gauge("lists_entries", "Entries of all lists in the replica.").set_function(lambda: replica.entries)
        metrics.read_counter(
            "lists_hits_lost", "Hits of list entries that were not counted.", lambda: replica.hits.lost
        )

    async def start(self, wait: float = 0.0) -> None:
        """Begin to feed; wait at most so many seconds until the first try has brought something or failed."""
        self._tasks = [
            asyncio.create_task(self._run(), name="lists feed"),
            asyncio.create_task(self._run_hits(), name="lists hits"),
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._tried.wait()

    async def stop(self) -> None:
        """Stop feeding, write the last hits down if that is quickly done, and let another process write."""
        if self._stopped:
            return
        self._stopped = True
        await end_tasks(*self._tasks)
        self._tasks = []
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await self.write_hits()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.close)
        self._thread.shutdown()

    async def step(self) -> None:
        """Bring the replica up to what is committed now, unless another process of the host does."""
        if not await self._in_thread(self._writer.take):
            return
        began = time.time()
        position = await self._in_thread(self._writer.position)
        if position is None or not await self._follow(position):
            await self._copy()
        await self._in_thread(self._writer.folder.say_fed, began)

    async def write_hits(self) -> None:
        """Write down the hits counted so far; those that cannot be written are kept, as far as there is room."""
        self._replica.hits.give_back(await write_hits(self._database, self._replica.hits.take()))

    async def _follow(self, position: Position) -> bool:
        """Apply the changes since the position; return False if a full copy is needed."""
        async with snapshot(self._database) as state:
            if not can_follow(position, state.position):
                return False
            changed = False
            async for changes in state.changes_since(position):
                await self._in_thread(self._writer.apply, changes)
                changed = True
        # A position costs a write: without changes it may be a minute old, and that minute is read again.
        if changed or state.position.moment - position.moment > 60:
            await self._in_thread(self._writer.advance, state.position)
        await self._in_thread(self._writer.refresh_filter)
        return True

    async def _copy(self) -> None:
        """Copy all lists into a file of its own and switch to it."""
        began = time.monotonic()
        copy: WholeCopy | None = None
        try:
            async with asyncio.timeout(STALL_SECONDS) as stall_timeout, snapshot(self._copies) as state:
                lists = await state.lists()
                _log.info("lists_copy_begins")
                copy = await self._in_thread(WholeCopy, self._writer.folder, lists)
                take = copy.take
                pipe = _Pipe(lambda lines: self._in_thread(take, lines), stall_timeout)
                await state.copy(pipe.take)
                await pipe.finish()
            await self._in_thread(self._writer.close_file)
            await self._in_thread(copy.finish, state.position)
        finally:
            if copy is not None:
                await asyncio.shield(self._in_thread(copy.abandon))
        _log.info("lists_copied", entries=copy.taken, seconds=round(time.monotonic() - began, 1))

    async def _run(self) -> None:
        while True:
            pause = INTERVAL
            try:
                await self.step()
                if self._away:
                    _log.info("lists_fed_again")
                self._away = False
                await self._purge()
            except (StorageUnavailable, TimeoutError) as error:
                if not self._away:
                    _log.warning("lists_not_fed", reason=str(error) or "The copy stands still.")
                self._away = True
            except DiskFailed as error:
                _log.error("lists_not_written", reason=str(error))
                pause = RETRY_SECONDS
            except Exception:
                _log.exception("lists_not_fed")
                pause = RETRY_SECONDS
            self._tried.set()
            await asyncio.sleep(pause)

    async def _run_hits(self) -> None:
        while True:
            await asyncio.sleep(HITS_INTERVAL)
            try:
                await self.write_hits()
            except Exception:
                # A bug of ours: the counts of these seconds are lost, and later ones must not be.
                _log.exception("list_hits_lost")

    async def _purge(self) -> None:
        now = time.monotonic()
        if now >= self._next_purge:
            self._next_purge = now + PURGE_INTERVAL
            if purged := await purge_changes(self._database):
                _log.info("list_changes_purged", changes=purged)

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work in the one writer thread."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, lambda: work(*args, **kwargs))
        except (sqlite3.Error, OSError) as error:
            raise DiskFailed(f"{type(error).__name__}: {error}") from error


class _Pipe:
    """Pipes a copy's lines from PostgreSQL to the writer thread: one chunk is written while the next arrives."""

    def __init__(
        self, write: Callable[[bytes], Coroutine[object, object, None]], stall_timeout: asyncio.Timeout
    ) -> None:
        self._write = write
        self._stall_timeout = stall_timeout
        self._bytes = 0
        self._told = time.monotonic()
        self._buffer = bytearray()
        self._writing: asyncio.Task[None] | None = None

    async def take(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= _CHUNK:
            await self._pass_on(self._buffer.rfind(b"\n") + 1)

    async def finish(self) -> None:
        await self._pass_on(len(self._buffer))
        await self._settle()

    async def _pass_on(self, end: int) -> None:
        await self._settle()
        self._writing = asyncio.create_task(self._write(bytes(self._buffer[:end])))
        del self._buffer[:end]
        self._bytes += end
        self._stall_timeout.reschedule(asyncio.get_running_loop().time() + STALL_SECONDS)
        if time.monotonic() - self._told > PROGRESS_SECONDS:
            self._told = time.monotonic()
            _log.info("lists_copying", mebibytes=self._bytes >> 20)

    async def _settle(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            await writing
