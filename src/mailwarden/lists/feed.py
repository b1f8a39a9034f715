"""Feeds this host's replica from PostgreSQL: a whole copy first, then every change within a fraction of a second.

Of the guards that share a folder one writes, and another takes over when it ends. While the database is away the
replica stays as it is. Each guard writes the hits that it counted back to PostgreSQL.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable
from mailwarden.lists.changes import can_follow, purge_changes, snapshot, write_hits
from mailwarden.lists.replica import Replica
from mailwarden.lists.replica_copy import WholeCopy
from mailwarden.lists.replica_writer import Position, ReplicaWriter
from mailwarden.telemetry.chore import end_tasks
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

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


class DiskFailed(Exception):
    """The replica could not be written."""


class Feed:
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
            lambda: replica.lag_seconds or 0.0
        )
        metrics.gauge("lists_entries", "Entries of all lists in the replica.").set_function(lambda: replica.entries)
        self._hits_lost = metrics.gauge("lists_hits_lost", "Hits of list entries that were not counted.")
        self._hits_lost.set_function(lambda: replica.hits.lost)

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
        """Apply what changed since; return False where that cannot be told."""
        async with snapshot(self._database) as state:
            if not can_follow(position, state.position):
                return False
            changed = False
            async for changes in state.changes_since(position):
                await self._in_thread(self._writer.apply, changes)
                changed = True
        # A position costs a write, so where nothing changed it may be a minute old: what it misses is looked at again.
        if changed or state.position.moment - position.moment > 60:
            await self._in_thread(self._writer.advance, state.position)
        await self._in_thread(self._writer.refresh_filter)
        return True

    async def _copy(self) -> None:
        """Copy all lists into a file of its own and switch to it."""
        began = time.monotonic()
        copy: WholeCopy | None = None
        try:
            async with asyncio.timeout(STALL_SECONDS) as patience, snapshot(self._copies) as state:
                lists = await state.lists()
                _log.info("lists_copy_begins")
                copy = await self._in_thread(WholeCopy, self._writer.folder, lists)
                take = copy.take
                pipe = _Pipe(lambda lines: self._in_thread(take, lines), patience)
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
        """Run what blocks in the one thread that writes."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, lambda: work(*args, **kwargs))
        except (sqlite3.Error, OSError) as error:
            raise DiskFailed(f"{type(error).__name__}: {error}") from error


class _Pipe:
    """Carries a copy's lines from PostgreSQL to the thread that writes: one piece is written while the next comes."""

    def __init__(self, write: Callable[[bytes], Coroutine[object, object, None]], patience: asyncio.Timeout) -> None:
        self._write = write
        self._patience = patience
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
        self._patience.reschedule(asyncio.get_running_loop().time() + STALL_SECONDS)
        if time.monotonic() - self._told > PROGRESS_SECONDS:
            self._told = time.monotonic()
            _log.info("lists_copying", mebibytes=self._bytes >> 20)

    async def _settle(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            await writing
