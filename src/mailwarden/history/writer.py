"""Writes history after the response, through a bounded queue that bridges an outage of the store.

Requests are written at once; while one batch is being written the next one collects. During an outage requests wait;
if the queue is full, the oldest are dropped and counted.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

from msgspec.structs import replace

from mailwarden.errors import StorageUnavailable
from mailwarden.history.store import CampaignStore
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import end_tasks

BATCH = 200
PAUSE = 0.05  # between two batches, so that a busy guard writes dozens of rows in a statement instead of two
GROUPING_TIMEOUT = 5.0
FIRST_RETRY, LAST_RETRY = 0.2, 2.0

Listener = Callable[[Sequence[FinishedRequest]], Awaitable[None]]

_log = get_logger("history.writer")


class Target(Protocol):
    """The part of a HistoryStore that the writer uses."""

    async def save(self, scope: Scope, requests: Sequence[FinishedRequest]) -> int: ...


class HistoryWriter:
    """Queues finished guard requests and writes them to the store in batches."""

    def __init__(
        self,
        store: Target,
        buffer: int,
        metrics: Metrics,
        on_written: Listener | None = None,
        campaigns: CampaignStore | None = None,
    ) -> None:
        self._store = store
        self._campaigns = campaigns
        self._on_written = on_written  # called with each batch that was stored
        self._buffer = buffer
        self._queue: deque[FinishedRequest] = deque()
        self._batch: deque[FinishedRequest] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._sending = False
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        self._written = metrics.counter("history_written", "Finished guard requests written to history.")
        self._dropped = metrics.counter("history_dropped", "Finished guard requests that history could not store.")
        self._ungrouped = metrics.counter(
            "history_ungrouped", "Messages stored without a campaign because grouping failed."
        )
        waiting = metrics.gauge("history_waiting", "Finished guard requests waiting to be written to history.")
        waiting.set_function(lambda: self.waiting)
        metrics.gauge("history_waiting_limit", "Requests that may wait; then the oldest are dropped.").set(buffer)

    @property
    def waiting(self) -> int:
        return len(self._queue) + len(self._batch)

    def save(self, request: FinishedRequest) -> None:
        """Queue a request; this never waits and never fails."""
        self._queue.append(request)
        if self.waiting > self._buffer:
            # A batch that is being sent may arrive; it can be dropped only while it waits for the next attempt.
            (self._batch if self._batch and not self._sending else self._queue).popleft()
            self._count_dropped(1)
        self._idle.clear()
        self._wake.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="history writer")

    async def stop(self, deadline: float) -> None:
        """Write the queue for at most `deadline` seconds; the rest is dropped and counted."""
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
            self._batch.clear()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                await self._write_batch()
                await asyncio.sleep(PAUSE)
            self._idle.set()

    async def _write_batch(self) -> None:
        while self._queue and len(self._batch) < BATCH:
            self._batch.append(self._queue.popleft())
        delay = FIRST_RETRY
        while self._batch:
            try:
                stored = await self._send(list(self._batch))
            except StorageUnavailable as error:
                _log.warning("history_write_delayed", reason=error.message, waiting=self.waiting)
                await asyncio.sleep(delay * random.uniform(0.8, 1.0))  # noqa: S311 -- jitter, not a secret
                delay = min(delay * 2, LAST_RETRY)
            except Exception:
                # The store handles a bad row by itself, so this is a bug: later rows must not wait for this batch.
                _log.exception("history_batch_failed", rows=len(self._batch))
                self._finish(stored=0)
            else:
                await self._notify(list(self._batch))
                self._finish(stored)

    async def _notify(self, batch: list[FinishedRequest]) -> None:
        """Call the listener; its failure does not stop the writer."""
        if self._on_written:
            try:
                await self._on_written(batch)
            except Exception:
                _log.exception("history_listener_failed", rows=len(batch))

    async def _send(self, batch: list[FinishedRequest]) -> int:
        self._sending = True
        try:
            grouped = await self._group(batch)
            stored = await self._store.save(Scope.deployment(), grouped)
        finally:
            self._sending = False
        if self._campaigns:
            self._ungrouped.inc(sum(bool(each.summary.similarity.keys) and not each.campaign for each in grouped))
        return stored

    async def _group(self, batch: list[FinishedRequest]) -> list[FinishedRequest]:
        """Return the requests with their campaigns; if grouping fails they are stored without."""
        if self._campaigns is None:
            return batch
        messages = [(each.tenant, each.summary.similarity) for each in batch]
        try:
            async with asyncio.timeout(GROUPING_TIMEOUT):
                found = await self._campaigns.assign(Scope.deployment(), messages, datetime.now(UTC).date())
        except Exception as error:  # history matters more than its groups
            _log.warning("campaigns_not_assigned", reason=str(error)[:200], rows=len(batch))
            return batch
        return [replace(each, campaign=ids) if ids else each for each, ids in zip(batch, found, strict=True)]

    def _finish(self, stored: int) -> None:
        """Remove the batch from the queue and count it."""
        self._written.inc(stored)
        if stored < len(self._batch):
            self._count_dropped(len(self._batch) - stored)
        self._batch.clear()

    def _count_dropped(self, rows: int) -> None:
        self.dropped += rows
        self._dropped.inc(rows)
