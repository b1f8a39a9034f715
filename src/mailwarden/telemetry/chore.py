"""A chore: something that is done again and again behind everybody's back, and outlives whatever goes wrong with it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from mailwarden.errors import MailwardenError
from mailwarden.telemetry.logs import get_logger

_log = get_logger("chore")


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
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
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
