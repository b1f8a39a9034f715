"""Writes the rows of the journal to the history store, in batches and each row once.

The position in the journal is saved after the commit. A batch whose result is unknown is sent again: the store ignores
rows that it has. While the store is down rows wait in the journal. A row that the store cannot store is put aside.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from traceback import format_exc
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.errors import StorageUnavailable
from mailwarden.history.store import CampaignStore, HistoryRow, Saved
from mailwarden.journal.format import Record
from mailwarden.journal.journal import Journal
from mailwarden.journal.losses import NotPutAside
from mailwarden.journal.records import decode
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.senders.model import Counting, SenderCounts
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import end_tasks

BATCH = 200
PAUSE = 0.25  # after a batch that was not full, so that a busy guard writes a dozen rows in a transaction
IDLE_SECONDS = 30.0
GROUPING_TIMEOUT = 5.0
FIRST_RETRY, LAST_RETRY = 0.2, 2.0
STOP_PATIENCE = 3.0  # at a stop: longer than the last retry
BUG_TRIES = 3  # of a row that fails for another reason than an outage; then it is put aside
_ALL = Scope.deployment()

_log = get_logger("history.writer")


class Target(Protocol):
    """The part of a HistoryStore that the writer uses."""

    async def save_rows(self, scope: Scope, rows: Sequence[HistoryRow], counting: Counting | None = None) -> Saved: ...


class SenderCounter(Protocol):
    """Counts the senders of stored requests."""

    async def counting(self) -> Counting: ...

    def stored(self, counts: SenderCounts) -> None: ...


class _Row(Struct, frozen=True):
    record: Record
    request: FinishedRequest


class HistoryWriter:
    """Sends the journal to the store, from its position on."""

    def __init__(
        self,
        journal: Journal,
        store: Target,
        metrics: Metrics,
        senders: SenderCounter | None = None,
        campaigns: CampaignStore | None = None,
    ) -> None:
        self._journal = journal
        self._store = store
        self._senders = senders
        self._campaigns = campaigns
        self._task: asyncio.Task[None] | None = None
        self._written = metrics.counter("history_written", "Finished guard requests written to history.")
        self._ungrouped = metrics.counter(
            "history_ungrouped", "Messages stored without a campaign because grouping failed."
        )

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="history writer")

    async def stop(self, deadline: float, patience: float = STOP_PATIENCE) -> None:
        """Send the journal for at most `deadline` seconds; the rest stays in it for the next start.

        If the store takes no row for `patience` seconds, it is down, and waiting longer gains nothing.
        """
        if self._task is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline):
                await self._journal.wait_until_sent(patience)
        await end_tasks(self._task)
        self._task = None
        if self._journal.waiting:
            _log.warning("history_rows_wait_in_journal", rows=self._journal.waiting)

    async def _run(self) -> None:
        number = self._journal.position
        while True:
            try:
                chunk = await self._journal.read(number, IDLE_SECONDS)
                await self._write_unsaved()
                for start in range(0, len(chunk.records), BATCH):
                    records = chunk.records[start : start + BATCH]
                    await self._write(await self._decoded(records))
                    await self._journal.advance(records[-1].number + 1)
                    await self._write_unsaved()  # a long journal must not fill the memory
                    if len(records) < BATCH and not self._journal.unsaved(1):
                        await asyncio.sleep(PAUSE)
                if chunk.following > self._journal.position:
                    await self._journal.advance(chunk.following)
            except NotPutAside as error:
                _log.error("rejected_row_waits", reason=str(error))
            except Exception:  # such as a disk that cannot be read: nothing is skipped
                _log.exception("history_writer_failed")
            else:
                number = chunk.following
                continue
            number = self._journal.position
            await asyncio.sleep(LAST_RETRY)

    async def _write_unsaved(self) -> None:
        """Write the rows that the disk did not take."""
        while records := self._journal.unsaved(BATCH):
            await self._write(await self._decoded(records))
            self._journal.forget_unsaved(len(records))

    async def _decoded(self, records: Sequence[Record]) -> list[_Row]:
        """Return the rows; one that this version cannot read is put aside."""
        self._journal.sending(records[0])
        rows: list[_Row] = []
        for place, result in enumerate(await asyncio.to_thread(_decode_all, records)):
            if isinstance(result, FinishedRequest):
                rows.append(_Row(records[place], result))
            else:
                await self._journal.reject(records[place], result)
        return rows

    async def _write(self, rows: Sequence[_Row]) -> None:
        """Write the rows; return when each is stored or put aside, however long the store is down."""
        delay, failures = FIRST_RETRY, 0
        while rows:
            try:
                await self._send(rows)
            except StorageUnavailable as error:
                _log.warning("history_write_delayed", reason=error.message, waiting=self._journal.waiting)
            except NotPutAside:
                raise
            except Exception as error:
                # Not an outage: one of the rows may be the cause.
                reason = f"{type(error).__name__}: {error}"
                _log.error("history_batch_failed", rows=len(rows), reason=reason, trace=format_exc(limit=-5))
                failures += 1
                if len(rows) > 1:
                    middle = len(rows) // 2
                    await self._write(rows[:middle])
                    await self._write(rows[middle:])
                    return
                if failures == BUG_TRIES:
                    await self._journal.reject(rows[0].record, reason)
                    return
            else:
                return
            await asyncio.sleep(delay * random.uniform(0.8, 1.0))  # noqa: S311 -- jitter, not a secret
            delay = min(delay * 2, LAST_RETRY)

    async def _send(self, rows: Sequence[_Row]) -> None:
        grouped = await group(self._campaigns, [row.request for row in rows])
        counting = await self._senders.counting() if self._senders else None
        stored = [HistoryRow(request, row.record.payload) for request, row in zip(grouped, rows, strict=True)]
        saved = await self._store.save_rows(_ALL, stored, counting)
        if self._senders:
            for counts in saved.counts:
                self._senders.stored(counts)
        if saved.rejected:
            records = {(row.request.ggrid, row.request.tenant): row.record for row in rows}
            for bad in saved.rejected:
                await self._journal.reject(records[bad.request.ggrid, bad.request.tenant], bad.reason)
        self._written.inc(saved.stored)
        if self._campaigns:
            self._ungrouped.inc(sum(bool(each.summary.similarity.keys) and not each.campaign for each in grouped))


async def group(campaigns: CampaignStore | None, batch: list[FinishedRequest]) -> list[FinishedRequest]:
    """Return the requests with their campaigns; if grouping fails they are stored without."""
    if campaigns is None:
        return batch
    messages = [(each.tenant, each.summary.similarity) for each in batch]
    try:
        async with asyncio.timeout(GROUPING_TIMEOUT):
            found = await campaigns.assign(_ALL, messages, datetime.now(UTC).date())
    except Exception as error:  # history matters more than its groups
        _log.warning("campaigns_not_assigned", reason=str(error)[:200], rows=len(batch))
        return batch
    return [replace(each, campaign=ids) if ids else each for each, ids in zip(batch, found, strict=True)]


def _decode_all(records: Sequence[Record]) -> list[FinishedRequest | str]:
    """Return each request, or why its record cannot be read."""
    found: list[FinishedRequest | str] = []
    for record in records:
        try:
            found.append(decode(record.payload))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found
