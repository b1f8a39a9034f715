"""Group commits: a request is acknowledged when it is on disk, and what the disk does not take is counted."""

import asyncio
import os
import threading
import time
from pathlib import Path
from uuid import UUID

import pytest

from mailwarden.journal import journal as module
from mailwarden.journal.journal import Journal
from mailwarden.journal.losses import Loss, read_losses
from mailwarden.journal.records import decode, encode
from mailwarden.journal.segments import Limits, Segments
from mailwarden.model.record import FinishedRequest
from mailwarden.telemetry.metrics import Metrics
from tests.samples.finished import finished_request
from tests.unit.journal.journals import open_journal


def on_disk(folder: Path) -> set[UUID]:
    """Return the ggrids that a restart would find."""
    journal = Segments.open(folder, Limits(1 << 30), 1)
    found, number = set[UUID](), journal.position
    while number < journal.next:
        chunk = journal.read(number)
        found |= {decode(record.payload).ggrid for record in chunk.records}
        number = chunk.following
    journal.close()
    return found


async def test_acknowledged_requests_are_on_disk(tmp_path: Path) -> None:
    requests = [finished_request() for _ in range(50)]
    async with open_journal(tmp_path) as journal:
        assert all(await asyncio.gather(*(journal.append([request]) for request in requests)))
        assert journal.waiting == 50
    assert on_disk(tmp_path) == {request.ggrid for request in requests}


async def test_a_row_without_a_caller_that_waits_is_written(tmp_path: Path) -> None:
    """A cancelled scan queues its row and goes; a stop that follows at once writes the row."""
    queued, cancelled = finished_request(), finished_request()
    async with open_journal(tmp_path) as journal:
        journal.enqueue([])
        await asyncio.sleep(0)  # the journal's task runs
        journal.enqueue([queued])
        appending = asyncio.create_task(journal.append([cancelled]))
        await asyncio.sleep(0)
        appending.cancel()
        await asyncio.wait([appending])
    assert appending.cancelled()
    assert on_disk(tmp_path) == {queued.ggrid, cancelled.ggrid}


async def test_a_row_after_the_stop_is_counted_as_lost(tmp_path: Path) -> None:
    metrics = Metrics()
    async with open_journal(tmp_path, metrics=metrics) as journal:
        pass
    began = time.monotonic()
    assert not await journal.append([finished_request()])
    assert journal.enqueue([finished_request(), finished_request()]) == []
    assert time.monotonic() - began < module.CONFIRM_SECONDS
    assert journal.waiting == 0
    assert journal.enqueue([]) == []
    assert "mailwarden_history_dropped_total 3.0" in metrics.page().decode()


async def test_one_sync_serves_many_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, syncs = os.fdatasync, list[int]()

    def slow(file: int) -> None:
        syncs.append(file)
        time.sleep(0.02)
        real(file)

    monkeypatch.setattr(os, "fdatasync", slow)
    async with open_journal(tmp_path) as journal:
        await asyncio.gather(*(journal.append([finished_request()]) for _ in range(300)))
    assert len(syncs) <= 3


async def test_a_disk_that_hangs_delays_a_scan_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, metrics, released = os.fdatasync, Metrics(), threading.Event()

    def hang(file: int) -> None:
        released.wait(10)
        real(file)

    monkeypatch.setattr(os, "fdatasync", hang)
    monkeypatch.setattr(module, "CONFIRM_SECONDS", 0.1)
    request = finished_request()
    async with open_journal(tmp_path, metrics=metrics) as journal:
        began = time.monotonic()
        assert not await journal.append([request])
        assert time.monotonic() - began < 2
        assert journal.waiting == 1, "the disk has it, and history does not"
        released.set()
    assert "mailwarden_journal_unconfirmed_total 1.0" in metrics.page().decode()
    assert on_disk(tmp_path) == {request.ggrid}, "the row is late, not lost"


async def test_rows_beyond_the_limit_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONFIRM_SECONDS", 0.1)
    metrics = Metrics()
    async with open_journal(tmp_path, Limits(max_bytes=20_000), metrics) as journal:
        kept = [await journal.append([finished_request()]) for _ in range(30)]
    dropped = kept.count(False)
    assert 0 < dropped < 30
    assert f"mailwarden_history_dropped_total {dropped}.0" in metrics.page().decode()
    assert len(on_disk(tmp_path)) == kept.count(True)
    losses = read_losses(tmp_path)
    assert (losses.dropped, losses.damaged, losses.rejected) == (dropped, 0, 0)
    assert losses.last is not None


async def test_too_many_rows_in_memory_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 3)
    async with open_journal(tmp_path) as journal:
        assert not await journal.append([finished_request() for _ in range(4)])
        assert journal._losses.counts[Loss.DROPPED] == 4
        assert await journal.append([finished_request()])


async def test_a_row_that_cannot_be_encoded_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = finished_request(subject="bad"), finished_request()

    def fail_for_one(request: FinishedRequest) -> bytes:
        if request is bad:
            raise ValueError("a bug")
        return encode(request)

    monkeypatch.setattr(module, "encode", fail_for_one)
    monkeypatch.setattr(module, "CONFIRM_SECONDS", 30.0)  # this test is not about the speed of this machine
    async with open_journal(tmp_path) as journal:
        assert [await journal.append([each]) for each in (bad, good)] == [False, True]
    assert on_disk(tmp_path) == {good.ggrid}


async def test_metrics_show_size_and_age(tmp_path: Path) -> None:
    metrics = Metrics()
    async with open_journal(tmp_path, metrics=metrics) as journal:
        await journal.append([finished_request()])
        await journal.read(1, 1.0)
        await asyncio.sleep(0.05)
        assert 0.04 < journal.oldest_seconds < 5
        await journal.advance(2)
        assert journal.oldest_seconds == 0
    assert isinstance(journal, Journal)
    assert "mailwarden_journal_bytes_limit 1.073741824e+09" in metrics.page().decode()


async def test_an_unexpected_error_costs_its_group_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, real = Metrics(), Journal._commit

    def fail_once(journal: Journal, requests: list[FinishedRequest]) -> object:
        monkeypatch.setattr(Journal, "_commit", real)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Journal, "_commit", fail_once)
    async with open_journal(tmp_path, metrics=metrics) as journal:
        assert not await journal.append([finished_request()])
        assert await journal.append([finished_request()])
    assert "mailwarden_history_dropped_total 1.0" in metrics.page().decode()


async def test_scans_do_not_wait_for_a_disk_that_is_known_to_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, released = os.fdatasync, threading.Event()

    def hang(file: int) -> None:
        released.wait(10)
        real(file)

    monkeypatch.setattr(os, "fdatasync", hang)
    monkeypatch.setattr(module, "CONFIRM_SECONDS", 1.0)
    async with open_journal(tmp_path) as journal:
        assert not await journal.append([finished_request()])
        began = time.monotonic()
        assert not await journal.append([finished_request()])
        assert time.monotonic() - began < 0.9
        released.set()
        while journal._segments.waiting < 2:
            await asyncio.sleep(0.01)
        assert await journal.append([finished_request()])


async def test_rows_that_a_stop_cannot_write_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, released = os.fdatasync, threading.Event()

    def hang(file: int) -> None:
        released.wait(20)
        real(file)

    monkeypatch.setattr(os, "fdatasync", hang)
    for name in ("CONFIRM_SECONDS", "STOP_SECONDS", "CLOSE_SECONDS"):
        monkeypatch.setattr(module, name, 0.2, raising=False)
    began = time.monotonic()
    async with open_journal(tmp_path) as journal:
        await journal.append([finished_request()])
        await journal.append([finished_request() for _ in range(3)])
    try:
        assert time.monotonic() - began < 5
        assert read_losses(tmp_path).dropped == 4
    finally:
        released.set()


async def test_a_damaged_row_at_the_end_counts_as_a_loss(tmp_path: Path) -> None:
    async with open_journal(tmp_path) as journal:
        await journal.append([finished_request() for _ in range(3)])
    [path] = tmp_path.glob("*.journal")
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x55
    path.write_bytes(data)
    async with open_journal(tmp_path):
        pass
    assert read_losses(tmp_path).damaged == 1
