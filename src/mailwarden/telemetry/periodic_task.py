"""Runs background work at an interval, and continues after failures."""

import asyncio
from collections.abc import Awaitable, Callable

from mailwarden.errors import MailwardenError
from mailwarden.telemetry.logs import get_logger

CANCEL_AGAIN = 2.0  # seconds; longer than the cleanup at the end of a task

_log = get_logger("periodic_task")


async def end_tasks(*tasks: asyncio.Task[object] | None) -> None:
    """Cancel tasks until they have ended.

    Once is not enough: a library that is opening a connection may treat the cancellation as a failure of it.
    """
    left: set[asyncio.Task[object]] = {task for task in tasks if task is not None}
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=CANCEL_AGAIN)
        await asyncio.gather(*done, return_exceptions=True)


class PeriodicTask:
    """Runs its work every `interval` seconds. A failure is logged, and the next round tries again.

    A `quiet` task logs expected failures, such as an outage, at level debug.
    """

    def __init__(
        self, name: str, work: Callable[[], Awaitable[object]], interval: float, *, quiet: bool = False
    ) -> None:
        self._name = name
        self._work = work
        self._interval = interval
        self._quiet = quiet
        self._task: asyncio.Task[None] | None = None

    def start(self, *, at_once: bool = False) -> None:
        """Start; run the work at once, or first after one interval."""
        self._task = asyncio.create_task(self._run(at_once=at_once), name=self._name)

    async def stop(self) -> None:
        await end_tasks(self._task)
        self._task = None

    async def attempt(self) -> None:
        """Run the work once; log a failure."""
        try:
            await self._work()
        except (MailwardenError, TimeoutError) as error:
            write = _log.debug if self._quiet else _log.warning
            write("periodic_task_failed", task=self._name, reason=str(error))
        except Exception:
            _log.exception("periodic_task_failed", task=self._name)

    async def _run(self, *, at_once: bool) -> None:
        if at_once:
            await self.attempt()
        while True:
            await asyncio.sleep(self._interval)
            await self.attempt()
