"""A queue does one job at a time; what a stop does to the current job depends on whether it may begin again."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import pytest

from mailwarden.database.queue import MAX_ATTEMPTS, Queue, next_attempt
from mailwarden.errors import StorageUnavailable


class Numbers(Queue[int]):
    """Three jobs: each has a piece in hand, and `seconds` more, with negative ones a failure."""

    def __init__(self, seconds: float, *, may_begin_again: bool = False, piece: float = 0.0) -> None:
        super().__init__("numbers", 60.0, give_back=self.take_back if may_begin_again else None)
        self.seconds, self.piece = seconds, piece
        self.begun = asyncio.Event()
        self.ended: list[int] = []
        self.returned: list[int] = []

    async def jobs(self) -> AsyncGenerator[int, None]:
        for number in range(3):
            yield number

    async def work(self, job: int) -> int:
        self.begun.set()
        if self.piece:
            async with self.in_hand:
                await asyncio.sleep(self.piece)
                self.ended.append(job)
        if self.seconds < 0:
            raise ConnectionError("broken")
        await asyncio.sleep(self.seconds)
        self.ended.append(job)
        return 2

    async def take_back(self, job: int) -> None:
        self.returned.append(job)
        raise StorageUnavailable("away")


async def test_the_jobs_that_are_due_are_done_and_added_up() -> None:
    assert await Numbers(0.0).look() == 6


@pytest.mark.parametrize(
    ("queue", "ended", "returned"),
    [
        pytest.param(Numbers(0.05), [0], [], id="finished, and no other begun"),
        pytest.param(Numbers(60.0), [], [], id="cancelled after the grace period"),
        pytest.param(Numbers(60.0, may_begin_again=True), [], [0], id="given back"),
        pytest.param(Numbers(60.0, may_begin_again=True, piece=0.05), [0], [0], id="given back after the piece"),
    ],
)
async def test_a_stop_ends_the_current_job(
    queue: Numbers, ended: list[int], returned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailwarden.database.queue.STOP_SECONDS", 2.0)
    queue.start()
    async with asyncio.timeout(20):
        await queue.begun.wait()
        await queue.stop()
    assert (queue.ended, queue.returned) == (ended, returned)


async def test_a_failed_job_is_given_back_and_ends_the_look() -> None:
    queue = Numbers(-1.0, may_begin_again=True)
    with pytest.raises(ConnectionError):
        await queue.look()
    assert queue.returned == [0]


def test_the_pauses_between_attempts_grow() -> None:
    now = datetime.now(UTC)
    pauses = [(next_attempt(now, attempt) - now) / timedelta(minutes=10) for attempt in range(1, MAX_ATTEMPTS)]
    assert pauses == [1, 2, 4, 8, 16]
