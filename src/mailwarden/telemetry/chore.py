"""A chore: something that is done again and again behind everybody's back, and outlives whatever goes wrong with it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from mailwarden.errors import MailwardenError
from mailwarden.telemetry.logs import get_logger

CANCEL_AGAIN = 2.0  # seconds; longer than what has to be tidied up at the end of a task

_log = get_logger("chore")


async def end_tasks(*tasks: asyncio.Task[object] | None) -> None:
    """Cancel tasks until they have ended.

    Once is not enough: a library that is just opening a connection may take the cancellation for a failure to do so.
    """
    left: set[asyncio.Task[object]] = {task for task in tasks if task is not None}
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=CANCEL_AGAIN)
        await asyncio.gather(*done, return_exceptions=True)


class Chore:
    """Does its work, rests for `interval` seconds, and does it again. A failure is logged; the next round tries again.

    A chore that is `quiet` tells of a failure that we know, an outage above all, only to those who debug.

    Work that must not be cut off in the middle is done in pieces: while not `stopping`, each holding `in_hand`.
    """

    def __init__(
        self, name: str, work: Callable[[], Awaitable[object]], interval: float, *, quiet: bool = False
    ) -> None:
        self._name = name
        self._work = work
        self._interval = interval
        self._quiet = quiet
        self._task: asyncio.Task[None] | None = None
        self.in_hand = asyncio.Lock()
        self.stopping = False

    def start(self, *, rested: bool = False) -> None:
        """Begin; one that is `rested` works at once, the others rest first."""
        self._task = asyncio.create_task(self._run(rested=rested), name=self._name)

    async def finish(self, patience: float) -> None:
        """Let the piece of work in hand come to its end, within so many seconds; then stop."""
        self.stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(patience), self.in_hand:
                pass
        await self.stop()

    async def stop(self) -> None:
        await end_tasks(self._task)
        self._task = None

    async def attempt(self) -> None:
        """Do the work once, whatever comes of it."""
        try:
            await self._work()
        except (MailwardenError, TimeoutError) as error:
            tell = _log.debug if self._quiet else _log.warning
            tell("chore_failed", chore=self._name, reason=str(error))
        except Exception:
            _log.exception("chore_failed", chore=self._name)

    async def _run(self, *, rested: bool) -> None:
        if rested:
            await self.attempt()
        while True:
            await asyncio.sleep(self._interval)
            await self.attempt()
