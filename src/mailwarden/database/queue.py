"""Queues of jobs in PostgreSQL: a process claims a job that is due, does it alone, and then claims the next one.

The jobs are rows of the feature's own table, and the claim is committed before the work begins. After a crash a claim
that ends by itself lets another process begin the job again; a claim that changes the job's state lets none.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from mailwarden.errors import MailwardenError
from mailwarden.telemetry.periodic_task import PeriodicTask

STOP_SECONDS = 20.0  # for the work in hand when the process stops
MAX_ATTEMPTS = 6
RETRY = timedelta(minutes=10)  # the first pause between two attempts; each is twice as long
JobT = TypeVar("JobT")


def next_attempt(now: datetime, attempt: int) -> datetime:
    """Return when a job that failed is due again; `attempt` is 1 after the first failure."""
    return now + RETRY * (1 << (attempt - 1))


class Queue(ABC, Generic[JobT]):
    """Looks for jobs every `interval` seconds, and does one at a time.

    A stop waits for the current job, and cancels it in the end. A queue with `give_back` has jobs that may begin again:
    a stop cancels the job at once, except in pieces that hold `in_hand`. A job that failed or was cancelled is given
    back, so that no process waits for the end of its claim. A `quiet` queue logs expected failures, such as an outage,
    at level debug.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        *,
        quiet: bool = False,
        give_back: Callable[[JobT], Awaitable[None]] | None = None,
    ) -> None:
        self._task = PeriodicTask(name, self.look, interval, quiet=quiet)
        self._give_back = give_back
        self.in_hand = asyncio.Lock()
        self.stopping = False

    @abstractmethod
    def jobs(self) -> AsyncGenerator[JobT, None]:
        """Claim the jobs that are due: each when the one before is done."""

    @abstractmethod
    async def work(self, job: JobT) -> int:
        """Do a claimed job and store its outcome; return the number that `look` adds up."""

    def start(self) -> None:
        self._task.start(at_once=True)

    async def stop(self) -> None:
        self.stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS), self.in_hand:
                pass
        await self._task.stop()

    async def look(self) -> int:
        """Do the jobs that are due; return the sum of what `work` returned."""
        total = 0
        async with aclosing(self.jobs()) as jobs:
            while not self.stopping:
                async with nullcontext() if self._give_back else self.in_hand:
                    job = await anext(jobs, None)
                    if job is None:
                        break
                    async with self.given_back_on_failure(job):
                        total += await self.work(job)
        return total

    @asynccontextmanager
    async def given_back_on_failure(self, job: JobT) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            if self._give_back is not None:
                with suppress(MailwardenError):  # the claim ends by itself
                    await asyncio.shield(self._give_back(job))
            raise
