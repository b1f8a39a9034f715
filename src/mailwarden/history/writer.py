"""Writes history behind the scan's back: a bounded buffer that outlives an outage of the store.

What is queued is written at once; while one batch is on its way the next one gathers. With the store away the
rows wait, and beyond the buffer the oldest are dropped and counted.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from mailwarden.errors import StorageUnavailable
from mailwarden.history.store import HistoryStore
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.telemetry.chore import end_tasks
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

BATCH = 200
PAUSE = 0.05  # between two batches, so that a busy guard writes dozens of rows a statement instead of two
FIRST_RETRY, LAST_RETRY = 0.2, 2.0

Learner = Callable[[Sequence[FinishedRequest]], Awaitable[None]]

_log = get_logger("history.writer")


class HistoryWriter:
    """Takes finished guard requests from the loop that scans and brings them to the store."""

    def __init__(self, store: HistoryStore, buffer: int, metrics: Metrics, learn: Learner | None = None) -> None:
        self._store = store
        self._learn = learn  # is shown each batch that was kept
        self._buffer = buffer
        self._queue: deque[FinishedRequest] = deque()
        self._in_hand: deque[FinishedRequest] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._on_its_way = False
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        self._written = metrics.counter("history_written", "Finished guard requests written to history.")
        self._dropped = metrics.counter("history_dropped", "Finished guard requests that history could not keep.")
        waiting = metrics.gauge("history_waiting", "Finished guard requests waiting to be written to history.")
        waiting.set_function(lambda: self.waiting)

    @property
    def waiting(self) -> int:
        return len(self._queue) + len(self._in_hand)

    def save(self, request: FinishedRequest) -> None:
        """Queue a request; never waits and never fails."""
        self._queue.append(request)
        if self.waiting > self._buffer:
            # A batch on its way may arrive: it is dropped only while it waits for the store to come back.
            (self._in_hand if self._in_hand and not self._on_its_way else self._queue).popleft()
            self._count_dropped(1)
        self._idle.clear()
        self._wake.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="history writer")

    async def stop(self, deadline: float) -> None:
        """Write what is queued for at most `deadline` seconds; what is left then is dropped and counted."""
        if self._task is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline):
                await self._idle.wait()
        await end_tasks(self._task)
        self._task = None
        if self.waiting:
            self._count_dropped(self.waiting)
            self._queue.clear()
            self._in_hand.clear()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                await self._write_batch()
                await asyncio.sleep(PAUSE)
            self._idle.set()

    async def _write_batch(self) -> None:
        while self._queue and len(self._in_hand) < BATCH:
            self._in_hand.append(self._queue.popleft())
        delay = FIRST_RETRY
        while self._in_hand:
            try:
                kept = await self._send(list(self._in_hand))
            except StorageUnavailable as error:
                _log.warning("history_waits", reason=error.message, waiting=self.waiting)
                await asyncio.sleep(delay * random.uniform(0.8, 1.0))  # noqa: S311 -- jitter, not a secret
                delay = min(delay * 2, LAST_RETRY)
            except Exception:
                # The store looks at each row by itself, so this is a bug: these rows must not hold up all later ones.
                _log.exception("history_lost", rows=len(self._in_hand))
                self._finish(kept=0)
            else:
                await self._show(list(self._in_hand))
                self._finish(kept)

    async def _show(self, batch: list[FinishedRequest]) -> None:
        """Let the learner see what was kept; what it cannot take is no reason to stop."""
        if self._learn:
            try:
                await self._learn(batch)
            except Exception:
                _log.exception("history_not_learned", rows=len(batch))

    async def _send(self, batch: list[FinishedRequest]) -> int:
        self._on_its_way = True
        try:
            return await self._store.save(Scope.deployment(), batch)
        finally:
            self._on_its_way = False

    def _finish(self, kept: int) -> None:
        """Take the batch off the buffer."""
        self._written.inc(kept)
        if kept < len(self._in_hand):
            self._count_dropped(len(self._in_hand) - kept)
        self._in_hand.clear()

    def _count_dropped(self, rows: int) -> None:
        self.dropped += rows
        self._dropped.inc(rows)
