"""A chore: done again and again, whatever goes wrong, until it is stopped."""

import asyncio

import pytest

from mailwarden.errors import StorageUnavailable
from mailwarden.telemetry.chore import Chore


async def settle(done: list[int], count: int) -> None:
    async with asyncio.timeout(5):
        while len(done) < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("error", [StorageUnavailable("away"), TimeoutError(), ValueError("a bug")])
async def test_a_chore_outlives_what_goes_wrong(error: Exception) -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(1)
        raise error

    chore = Chore("trial", work, 0.001)
    chore.start()
    await settle(done, 3)
    await chore.stop()


async def test_a_rested_chore_works_at_once_and_a_stopped_one_no_more() -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    chore = Chore("trial", work, 60.0)
    chore.start(rested=True)
    await settle(done, 1)
    await chore.stop()
    await chore.stop()
    assert done == [1]
    chore.start()
    await asyncio.sleep(0.01)
    await chore.stop()
    assert done == [1]


async def test_what_is_in_hand_comes_to_its_end_and_no_further_piece_begins():
    begun = asyncio.Event()
    ended: list[str] = []

    async def work() -> None:
        while not chore.stopping:
            async with chore.in_hand:
                begun.set()
                await asyncio.sleep(0.05)
                ended.append("piece")

    chore = Chore("pieces", work, 60.0)
    chore.start(rested=True)
    await begun.wait()
    await chore.finish(10.0)
    assert ended == ["piece"]


async def test_what_takes_too_long_is_cut_off():
    begun = asyncio.Event()

    async def work() -> None:
        async with chore.in_hand:
            begun.set()
            await asyncio.sleep(60)

    chore = Chore("piece", work, 60.0)
    chore.start(rested=True)
    await begun.wait()
    async with asyncio.timeout(10):
        await chore.finish(0.05)


async def test_a_chore_that_takes_its_cancellation_for_a_failure_is_stopped_all_the_same(monkeypatch):
    monkeypatch.setattr("mailwarden.telemetry.chore.CANCEL_AGAIN", 0.01)
    begun = asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionError("as a driver says that was about to connect") from None

    chore = Chore("swallows", work, 60.0)
    chore.start(rested=True)
    await begun.wait()
    async with asyncio.timeout(10):
        await chore.stop()
