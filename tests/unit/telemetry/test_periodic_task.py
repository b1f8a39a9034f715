"""A periodic task runs again after failures, until it is stopped."""

import asyncio

import pytest

from mailwarden.errors import StorageUnavailable
from mailwarden.telemetry.periodic_task import PeriodicTask


async def settle(done: list[int], count: int) -> None:
    async with asyncio.timeout(5):
        while len(done) < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("error", [StorageUnavailable("away"), TimeoutError(), ValueError("a bug")])
async def test_a_task_continues_after_failures(error: Exception) -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(1)
        raise error

    task = PeriodicTask("trial", work, 0.001)
    task.start()
    await settle(done, 3)
    await task.stop()


async def test_a_task_can_run_at_once_and_ends_when_stopped() -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    task = PeriodicTask("trial", work, 60.0)
    task.start(at_once=True)
    await settle(done, 1)
    await task.stop()
    await task.stop()
    assert done == [1]
    task.start()
    await asyncio.sleep(0.01)  # the interval is 60 s: no run
    await task.stop()
    assert done == [1]


async def test_a_chore_that_takes_its_cancellation_for_a_failure_is_stopped_all_the_same(monkeypatch):
    monkeypatch.setattr("mailwarden.telemetry.periodic_task.CANCEL_AGAIN", 0.01)
    begun = asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionError("as a driver says that was about to connect") from None

    task = PeriodicTask("swallows", work, 60.0)
    task.start(at_once=True)
    await begun.wait()
    async with asyncio.timeout(10):
        await task.stop()
