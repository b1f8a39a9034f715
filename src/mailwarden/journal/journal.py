"""The journal of guard: takes finished requests in group commits, and gives them back in order.

`append` returns when the request is on disk. While one group is written and synced, the next one collects, so one
fsync serves many requests. Requests that the disk does not take wait in memory, up to a limit, and go to history
without it: then `append` returns when history has them. Further ones are dropped and counted. A scan waits for two
seconds at most, and never fails for its row.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from mailwarden.journal.format import MAX_PAYLOAD, OVERHEAD, Record
from mailwarden.journal.losses import Loss, Losses
from mailwarden.journal.records import VERSION, encode
from mailwarden.journal.segments import SEGMENT_BYTES, Chunk, JournalFull, Limits, Segments
from mailwarden.model.record import FinishedRequest
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import end_tasks

MAX_GROUP = 500  # requests of one fsync
MAX_PENDING = 20_000  # requests that wait for the disk; further ones are dropped
MAX_UNSAVED = 5_000  # requests that the disk did not take and history does not have yet; further ones are dropped
MAX_UNSAVED_BYTES = 64 * 1024 * 1024
CONFIRM_SECONDS = 2.0  # a scan waits no longer until its row is on disk or in history
CONFIRM_GRACE = 0.05  # after one has waited in vain
STOP_SECONDS = 10.0
CLOSE_SECONDS = 2.0  # for each of the last steps of a stop, on a disk that may hang
LOG_EVERY = 10.0  # seconds between two log lines about refused or dropped requests

_log = get_logger("history.journal")


class _Pending(Struct, frozen=True):
    request: FinishedRequest
    done: asyncio.Future[bool]


class _Commit(Struct, frozen=True):
    """Which requests of a group are on disk, and by their places those that the disk did not take, with the reason."""

    kept: list[bool]
    refused: dict[int, bytes]
    reason: str = ""


class _Unsaved(Struct, frozen=True):
    """A request in memory alone, numbered 0, because it has no place in the journal."""

    record: Record
    done: asyncio.Future[bool]


class Journal:
    """Finished requests on disk until the history store has them."""

    def __init__(self, segments: Segments, losses: Losses, metrics: Metrics, *, max_bytes: int) -> None:
        self._segments = segments
        self._losses = losses
        self._pending: list[_Pending] = []
        self._writing: list[_Pending] = []  # the group that the disk has
        self._unsaved: deque[_Unsaved] = deque()
        self._wake = asyncio.Event()
        self._readable = asyncio.Event()
        self._disk = ThreadPoolExecutor(1, "journal")
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._stalled = False  # a row was not confirmed in time, and none was since
        self._sent = asyncio.Event()
        self._log_from = 0.0  # dropped requests
        self._log_refused_from = 0.0
        self._oldest = 0  # milliseconds of the first record that is being sent
        self._unconfirmed = metrics.counter(
            "journal_unconfirmed", "Scans answered before their history row was on disk or in history."
        )
        self._direct = metrics.counter(
            "history_direct", "Rows written to history without the journal, which could not take them."
        )
        self._commits = metrics.counter("journal_commits", "Group commits to the journal.")
        self._seconds = metrics.histogram("journal_commit_seconds", "Seconds that a group commit took.")
        metrics.gauge("journal_bytes", "Size of the journal.").set_function(lambda: segments.size)
        metrics.gauge("journal_bytes_limit", "Size at which the journal takes no more rows.").set(max_bytes)
        waiting = metrics.gauge("history_waiting", "Finished guard requests waiting to be written to history.")
        waiting.set_function(lambda: self.waiting)
        age = metrics.gauge("history_oldest_seconds", "Age of the oldest request that waits to be written to history.")
        age.set_function(lambda: self.oldest_seconds)

    @classmethod
    def open(cls, folder: Path, limits: Limits, metrics: Metrics) -> "Journal":
        segments = Segments.open(folder, limits, VERSION)
        if segments.waiting:
            _log.info("journal_opened", rows=segments.waiting, bytes=segments.size)
        losses = Losses(folder, metrics)
        if segments.damaged_tail:
            losses.add(Loss.DAMAGED, segments.damaged_tail)
            losses.save()
        return cls(segments, losses, metrics, max_bytes=limits.max_bytes)

    @property
    def waiting(self) -> int:
        """Return how many requests history may not have."""
        return self._segments.waiting + len(self._writing) + len(self._pending) + len(self._unsaved)

    @property
    def oldest_seconds(self) -> float:
        oldest = [self._unsaved[0].record.milliseconds] if self._unsaved else []
        if self._segments.waiting and self._oldest:
            oldest.append(self._oldest)
        return max(0.0, time.time() - min(oldest) / 1000) if oldest else 0.0

    @property
    def position(self) -> int:
        """Return the number of the first record that history may not have."""
        return self._segments.position

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="journal")

    async def stop(self) -> None:
        """Write what is pending, and close the files; rows that the disk does not take in time are counted."""
        if self._task is not None:
            self._stopping = True
            self._wake.set()
            await asyncio.wait((self._task,), timeout=STOP_SECONDS)
            await end_tasks(self._task)
            self._task = None
        rest = [*self._writing, *self._pending]
        self._writing, self._pending = [], []
        if rest:  # the disk may still confirm the group that it has: then it is counted in vain
            self._drop(len(rest), f"the disk took no more rows for {STOP_SECONDS:.0f} s while guard stopped")
            await _within(CLOSE_SECONDS, self._losses.save)
        for each in rest:
            _answer(each.done, kept=False)
        unsaved = [*self._unsaved]
        self._unsaved.clear()
        if not await _within(CLOSE_SECONDS, lambda: self._save(unsaved)):
            self._drop(len(unsaved), "the disk hangs while guard stops")
            await _within(CLOSE_SECONDS, self._losses.save)
        for row in unsaved:
            _answer(row.done, kept=False)
        self._disk.shutdown(wait=False, cancel_futures=True)
        await _within(CLOSE_SECONDS, self._segments.close)

    async def append(self, requests: Sequence[FinishedRequest]) -> bool:
        """Return True when each request is on disk or in history, False if one was dropped or is in memory alone."""
        if not requests:
            return True
        confirmations = self.enqueue(requests)
        if not confirmations:
            return False
        # Once disk and history were late, waiting gains nothing until one of them has confirmed something again.
        done, late = await asyncio.wait(confirmations, timeout=CONFIRM_GRACE if self._stalled else CONFIRM_SECONDS)
        self._stalled = self._stalled or bool(late)
        self._unconfirmed.inc(len(late))
        return not late and all(each.result() for each in done)

    def enqueue(self, requests: Sequence[FinishedRequest]) -> list[asyncio.Future[bool]]:
        """Queue the requests for the disk; return a future of each, or none at all if they were dropped."""
        if not requests:
            return []
        if self._stopping and self._task is None:  # a session that ends after the stop
            self._drop(len(requests), "the journal is closed, because guard stops")
            return []
        if len(self._pending) + len(requests) > MAX_PENDING:
            self._drop(len(requests), f"{MAX_PENDING:,} rows wait for the disk")
            return []
        loop = asyncio.get_running_loop()
        pending = [_Pending(request, loop.create_future()) for request in requests]
        self._pending += pending
        self._wake.set()
        return [each.done for each in pending]

    async def read(self, number: int, seconds: float) -> Chunk:
        """Return the records from this number on; wait at most `seconds` for the first of them."""
        self._readable.clear()
        if number >= self._segments.next and not self._unsaved:
            try:
                async with asyncio.timeout(seconds):
                    await self._readable.wait()
            except TimeoutError:
                await asyncio.to_thread(self._segments.tidy)
        chunk = await asyncio.to_thread(self._segments.read, number)
        if chunk.missing:
            self._losses.add(Loss.DAMAGED, chunk.missing)
            await asyncio.to_thread(self._losses.save)
        if chunk.records:
            self._oldest = chunk.records[0].milliseconds
        return chunk

    def unsaved(self, count: int) -> list[Record]:
        """Return the first requests that are in memory alone; they stay there until `forget_unsaved`."""
        return [each.record for each in itertools.islice(self._unsaved, count)]

    def forget_unsaved(self, count: int) -> None:
        """Note that history has the first of the requests in memory."""
        for _ in range(count):
            _answer(self._unsaved.popleft().done, kept=True)
        self._stalled = False
        self._direct.inc(count)
        self._sent.set()

    async def advance(self, number: int) -> None:
        """Note that history has all records before this number."""
        await asyncio.to_thread(self._segments.advance, number)
        self._sent.set()

    async def wait_until_sent(self, patience: float) -> None:
        """Wait until history has all requests, or got none for `patience` seconds and all of them are on disk.

        A request that the disk did not take is lost at the end: the caller's deadline ends the wait for it.
        """
        while self.waiting:
            self._sent.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._sent.wait()
            except TimeoutError:
                if not self._unsaved:
                    return

    async def reject(self, record: Record, reason: str) -> None:
        """Put a record aside that history cannot store."""
        await asyncio.to_thread(self._losses.reject, record, reason)

    def sending(self, record: Record) -> None:
        """Note which record is the oldest that waits."""
        self._oldest = record.milliseconds

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                group, self._pending = self._pending[:MAX_GROUP], self._pending[MAX_GROUP:]
                self._writing = group
                began = time.perf_counter()
                try:
                    commit = await loop.run_in_executor(self._disk, self._commit, [each.request for each in group])
                except Exception as error:  # such as no thread: later groups are written all the same
                    _log.exception("journal_commit_failed")
                    self._drop(len(group), f"{type(error).__name__}: {error}")
                    commit = _Commit([False] * len(group), {})
                self._writing = []
                self._stalled = self._stalled and not any(commit.kept)
                self._seconds.observe(time.perf_counter() - began)
                self._commits.inc()
                for place, each in enumerate(group):
                    if place not in commit.refused:
                        _answer(each.done, kept=commit.kept[place])
                await self._keep_in_memory(group, commit)
                self._readable.set()

    async def _keep_in_memory(self, group: Sequence[_Pending], commit: _Commit) -> None:
        """Keep what the disk did not take, as far as there is room: history may take it without the disk."""
        moment, dropped = int(time.time() * 1000), 0
        size = sum(len(each.record.payload) for each in self._unsaved)
        for place, payload in commit.refused.items():
            if len(self._unsaved) >= MAX_UNSAVED or size + len(payload) > MAX_UNSAVED_BYTES:
                dropped += 1
                _answer(group[place].done, kept=False)
                continue
            size += len(payload)
            self._unsaved.append(_Unsaved(Record(0, moment, payload), group[place].done))
        if dropped:
            self._drop(dropped, commit.reason)
            await asyncio.to_thread(self._losses.save)
        elif commit.refused and time.monotonic() >= self._log_refused_from:
            self._log_refused_from = time.monotonic() + LOG_EVERY
            _log.warning("journal_refused_rows", rows=len(commit.refused), reason=commit.reason)

    def _save(self, unsaved: Sequence[_Unsaved]) -> None:
        """Write what is in memory alone at the end, or count it as dropped."""
        rest = [each.record.payload for each in unsaved]
        if not rest:
            return
        try:
            self._segments.append(rest, int(time.time() * 1000))
        except (JournalFull, OSError) as error:
            self._drop(len(rest), str(error))
            self._losses.save()

    def _commit(self, requests: Sequence[FinishedRequest]) -> _Commit:
        """Write a group to disk."""
        payloads = [_payload(request) for request in requests]
        kept = [False] * len(requests)
        refused, reason = dict[int, bytes](), ""
        if unusable := payloads.count(None):
            self._drop(unusable, f"a row has more than {MAX_PAYLOAD:,} bytes or cannot be encoded")
        moment = int(time.time() * 1000)
        for part in _parts(payloads):
            try:
                self._segments.append([payload for place in part if (payload := payloads[place])], moment)
            except (JournalFull, OSError) as error:
                refused |= {place: payload for place in part if (payload := payloads[place])}
                reason = str(error)
            else:
                for place in part:
                    kept[place] = True
        if unusable:
            self._losses.save()
        return _Commit(kept, refused, reason)

    def _drop(self, rows: int, reason: str) -> None:
        self._losses.add(Loss.DROPPED, rows)
        now = time.monotonic()
        if now >= self._log_from:
            self._log_from = now + LOG_EVERY
            _log.error("history_rows_dropped", rows=self._losses.counts[Loss.DROPPED], reason=reason)


def _answer(done: asyncio.Future[bool], *, kept: bool) -> None:
    if not done.done():
        done.set_result(kept)


async def _within(seconds: float, step: Callable[[], None]) -> bool:
    """Run a step of the disk in a thread; return False if it takes longer, and goes on alone."""
    done, _ = await asyncio.wait((asyncio.create_task(asyncio.to_thread(step)),), timeout=seconds)
    for each in done:
        each.result()
    return bool(done)


def _parts(payloads: Sequence[bytes | None]) -> Iterator[list[int]]:
    """Yield the places of payloads that are written together; a part has about the size of a segment at most."""
    part: list[int] = []
    size = 0
    for place, payload in enumerate(payloads):
        if payload is None:
            continue
        if part and size + len(payload) > SEGMENT_BYTES:
            yield part
            part, size = [], 0
        part.append(place)
        size += len(payload) + OVERHEAD
    if part:
        yield part


def _payload(request: FinishedRequest) -> bytes | None:
    try:
        payload = encode(request)
    except Exception:  # a bug costs this row, not its group
        _log.exception("history_row_not_encoded", ggrid=str(request.ggrid))
        return None
    return payload if len(payload) <= MAX_PAYLOAD else None
