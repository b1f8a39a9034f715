"""Which replicas of ClickHouse have the newest rows: each is asked every few seconds while there are searches.

A replica that lags or has lost Keeper still answers a search, without the newest rows. So reads go to another one. If
none is known to be up to date, reads go to any of them, and the log says so.
"""

import asyncio
import time
from collections.abc import Mapping

from mailwarden.errors import StorageUnavailable
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.schema import replica_state
from mailwarden.telemetry.logs import get_logger

ASK_SECONDS = 3.0  # between two questions
RECENT = 2  # times ASK_SECONDS for which an answer is used
ANSWER_SECONDS = 1.0  # that an answer may take
MAX_DELAY = 10  # seconds behind the others, up to which reads prefer a replica
NO_ANSWER = "does not answer"
_log = get_logger("history.clickhouse")


class ReplicaWatch:
    """Remembers why replicas may lack the newest rows, by address."""

    def __init__(self, clickhouse: Clickhouse) -> None:
        self._clickhouse = clickhouse
        self._reasons: Mapping[str, str] = {}
        self._ask_from = 0.0
        self._known_until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._logged = False

    @property
    def fresh(self) -> int:
        """The number of replicas that are up to date as far as known."""
        return len(self._clickhouse.target.urls) - len(self._reasons)

    async def stale(self) -> Mapping[str, str]:
        """Return the addresses that reads should avoid.

        The replicas are asked in the background; without a recent answer, such as after an hour without searches, every
        caller waits for the same question.
        """
        now = time.monotonic()
        if now >= self._ask_from and (self._task is None or self._task.done()):
            self._ask_from = now + ASK_SECONDS
            self._task = asyncio.create_task(self._ask())
        if self._task is not None and now >= self._known_until:
            await asyncio.wait((self._task,))  # at most ANSWER_SECONDS
        return self._reasons

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _ask(self) -> None:
        urls = self._clickhouse.target.urls
        found = zip(urls, await asyncio.gather(*map(self._reason, urls)), strict=True)
        self._reasons = {url: reason for url, reason in found if reason}
        self._known_until = time.monotonic() + RECENT * ASK_SECONDS
        if self.fresh and self._logged:
            self._logged = False
            _log.info("history_replicas_fresh", fresh=self.fresh)
        elif not self.fresh and not self._logged:
            self._logged = True
            _log.warning("history_replicas_stale", reasons=sorted(self._reasons.values()))

    async def _reason(self, url: str) -> str:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await replica_state(self._clickhouse, url, MAX_DELAY)
        except (StorageUnavailable, TimeoutError):
            return f"{url} {NO_ANSWER}"
