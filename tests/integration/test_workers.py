"""Worker processes: what they bring back, and that killing one costs its message alone."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from mailwarden.errors import Overloaded
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Status
from mailwarden.pipeline.collector import Collector
from mailwarden.pipeline.registry import LOCAL
from mailwarden.pipeline.worker_pool import LOWEST_PRIORITY, NICE, Timeouts, Worker, WorkerFailed, WorkerPool
from mailwarden.pipeline.worker_steps import Frame
from mailwarden.serving.spool import Spooled, SpoolWriter
from tests.samples.judged import missing_required
from tests.samples.scans import collect_one
from workshop.torture.harm import pictures_message

PLAIN = b"From: ann@sender.example\r\nTo: bob@corp.example\r\nSubject: lunch\r\n\r\nAt noon?\r\n"
PATIENCE = 60.0  # a worker that is started anew takes seconds on a busy machine
ENVELOPE = Envelope("ann@sender.example", ("bob@corp.example",))


@pytest.fixture
async def pool():
    workers = WorkerPool(1, 1024, Timeouts())
    await workers.start()
    yield workers
    await workers.stop()


async def examine(workers: WorkerPool, raw: bytes) -> list[Frame]:
    frames: list[Frame] = []
    await workers.run(Spooled.of(raw), frames.append)
    return frames


def pid_of(workers: WorkerPool) -> int:
    (worker,) = workers._all
    return pid_of_worker(worker)


def pid_of_worker(worker: Worker) -> int:
    assert worker._process
    return worker._process.pid


async def test_a_worker_reports_each_step_in_order(pool):
    frames = await examine(pool, PLAIN)
    assert [frame.report.analyzer for frame in frames] == [
        "structure",
        "message",
        *(local.name for local in LOCAL),
        "similarity",
        "coverage",
    ]
    assert all(frame.report.status is Status.FINISHED for frame in frames)
    assert frames[1].summary
    assert frames[1].summary.subject == "lunch"


async def test_a_message_in_a_spool_file_is_read_from_there(pool, tmp_path: Path):
    writer = SpoolWriter(tmp_path)
    await writer.write(PLAIN + b"x" * 2_000_000)
    spooled = await writer.finish()
    frames: list[Frame] = []
    await pool.run(spooled, frames.append)
    spooled.close()
    assert frames[1].summary
    assert frames[1].summary.size == len(PLAIN) + 2_000_000


def resident(pid: int) -> int:
    """Return the resident memory of a process in MiB."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) // 1024


async def test_a_worker_returns_the_memory_of_a_large_message(pool):
    await examine(pool, PLAIN)
    before = resident(pid_of(pool))
    page = b"".join(
        b'<p>Minutes of day %d <a href="https://corp.example/%d">here</a>.</p>\r\n' % (n, n) for n in range(250_000)
    )
    await examine(pool, PLAIN.replace(b"Subject", b"Content-Type: text/html\r\nSubject") + page)
    await examine(pool, PLAIN)
    assert resident(pid_of(pool)) < before + 60


async def test_a_message_that_trips_a_limit_is_not_parsed(pool):
    frames = await examine(pool, b"X: y\r\n" * 3_000 + b"\r\nbody")
    assert [frame.report.analyzer for frame in frames] == ["structure"]
    assert not frames[0].sound
    assert frames[0].summary
    assert frames[0].summary.sha256


async def test_a_worker_that_is_late_is_killed_and_replaced():
    workers = WorkerPool(1, 1024, Timeouts(structure=0.000_001))
    await workers.start()
    try:
        before = pid_of(workers)
        with pytest.raises(WorkerFailed) as failed:
            await examine(workers, PLAIN + b"x" * 900_000)
        assert failed.value.kind is FailureKind.TIMEOUT
        while not workers._all:
            await asyncio.sleep(0.05)
        assert pid_of(workers) != before
    finally:
        await workers.stop()


async def test_a_crash_costs_a_second_try_and_the_second_crash_leaves_failures():
    workers = WorkerPool(1, 1024, Timeouts())
    await workers.start()
    crashes = 0

    async def crash(*_, **__):
        nonlocal crashes
        crashes += 1
        raise WorkerFailed(FailureKind.CRASHED, "The worker process crashed.")

    examine_once = workers.run
    try:
        workers.run = crash  # type: ignore[method-assign]  # a crash on purpose
        collected = await collect_one(Collector(workers, ()), PLAIN, ENVELOPE, PATIENCE)
        assert crashes == 2
        assert {failure.kind for failure in missing_required(collected.evidence)} == {FailureKind.CRASHED}
        workers.run = examine_once  # type: ignore[method-assign]
        collected = await collect_one(Collector(workers, ()), PLAIN, ENVELOPE, PATIENCE)
        assert not collected.evidence.failures
    finally:
        await workers.stop()


async def test_a_worker_killed_from_outside_is_replaced_and_the_message_is_examined(pool):
    os.kill(pid_of(pool), signal.SIGKILL)
    collected = await collect_one(Collector(pool, ()), PLAIN, ENVELOPE, PATIENCE)
    assert not collected.evidence.failures


async def test_without_time_left_every_step_is_a_failure(pool):
    collected = await collect_one(Collector(pool, ()), PLAIN, ENVELOPE, 0.0)
    assert {failure.analyzer for failure in collected.evidence.failures} >= {"structure", "message", "html"}


async def test_heavy_messages_have_workers_of_their_own_at_a_lower_priority():
    workers = WorkerPool(1, 1024, Timeouts(), heavy=1, heavy_places=1)
    await workers.start()
    try:
        niceness = sorted(os.getpriority(os.PRIO_PROCESS, pid_of_worker(worker)) for worker in workers._all)
        assert niceness[-1] == min(LOWEST_PRIORITY, niceness[0] + NICE)
        assert niceness[-1] > niceness[0] or niceness[0] == LOWEST_PRIORITY
        heavy = PLAIN + b"x " * 600_000
        first = asyncio.create_task(examine(workers, heavy))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await examine(workers, heavy)
        assert (await examine(workers, PLAIN))[1].summary, "light messages have a worker meanwhile"
        assert (await first)[1].summary
        assert workers.heavy_refused == 1
        assert workers.heavy_in_hand == 0
    finally:
        await workers.stop()


async def test_a_message_that_proves_heavy_is_finished_by_the_other_worker():
    workers = WorkerPool(1, 1024, Timeouts(), heavy=1)
    await workers.start()
    try:
        raw = b"Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + bytes(300_000)
        frames = await examine(workers, raw)
        assert frames[-1].report.analyzer == "coverage"
        assert [frame.report.analyzer for frame in frames].count("structure") == 2, "it began anew"
        assert [frame.handed_over for frame in frames].count(True) == 1, "engines learn that it is heavy"
    finally:
        await workers.stop()


async def test_one_long_step_does_not_keep_a_light_worker():
    """A ZIP file of 130 KB with pictures of 16 megapixels looks light, and its pictures take seconds in one step."""
    workers = WorkerPool(1, 1024, Timeouts(), heavy=1)
    await workers.start()
    try:
        frames = await examine(workers, pictures_message(4, "PNG", zipped=True))
        assert [frame.handed_over for frame in frames].count(True) == 1
        assert frames[-1].report.analyzer == "coverage"
        started = time.monotonic()
        slow = asyncio.create_task(examine(workers, pictures_message(4, "PNG", zipped=True)))
        await examine(workers, PLAIN)
        assert not slow.done(), f"a quick message took {time.monotonic() - started:.1f} s"
        await slow
    finally:
        await workers.stop()


async def test_a_worker_that_waits_for_the_processor_is_not_late(pool):
    (worker,) = pool._all
    os.kill(pid_of(pool), signal.SIGSTOP)
    asking = asyncio.create_task(examine(pool, PLAIN))
    await asyncio.sleep(worker._timeouts.structure * 1.5)
    os.kill(pid_of(pool), signal.SIGCONT)
    assert (await asking)[1].summary


async def test_a_worker_that_never_goes_on_is_killed_by_the_clock():
    workers = WorkerPool(1, 1024, Timeouts(structure=0.2))
    await workers.start()
    try:
        os.kill(pid_of(workers), signal.SIGSTOP)
        with pytest.raises(WorkerFailed) as failed:
            await asyncio.wait_for(examine(workers, PLAIN), 30)
        assert failed.value.kind is FailureKind.TIMEOUT
    finally:
        await workers.stop()
