"""Runs the feeds that are due: one at a time over all processes, by a lease in the database."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta

from mailwarden.database.queue import Queue
from mailwarden.errors import MailwardenError
from mailwarden.feeds.fetching import HttpClient
from mailwarden.feeds.model import Feed
from mailwarden.feeds.service import FeedService, Outcome
from mailwarden.feeds.sightings import report_sightings
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

INTERVAL = 30.0  # seconds between two looks for due feeds
RUN_SECONDS = 1_500.0  # for one feed
LEASE = timedelta(seconds=1_800)  # longer than a run, so that no second process begins the same feed
MAX_FAILURE = 500
ALL = Scope.deployment()
_log = get_logger("feeds.job")


class FeedJob(Queue[Feed]):
    def __init__(
        self,
        service: FeedService,
        http: HttpClient,
        metrics: Metrics,
        *,
        interval: float = INTERVAL,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__("feeds", interval, quiet=True, give_back=service.store.release)
        self._service = service
        self._http = http
        self._clock = clock
        self._runs = metrics.counter("feed_runs", "Runs of feeds, by outcome.", "outcome")

    async def jobs(self) -> AsyncGenerator[Feed, None]:
        while (feed := await self._service.store.claim(ALL, self._clock(), LEASE)) is not None:
            yield feed

    async def work(self, job: Feed) -> int:
        await self.run(job)
        return 1

    async def run(self, feed: Feed) -> Outcome | None:
        """Run a feed that was claimed, and end its lease; None if it failed."""
        outcome, failure = await self._attempt(feed)
        if failure:
            _log.warning("feed_failed", feed=feed.name, tenant=str(feed.tenant or ""), reason=failure)
        self._runs.labels(outcome or "failed").inc()
        next_run = self._clock() + timedelta(seconds=feed.settings.interval)
        await self._service.store.finish(feed, next_run, failure[:MAX_FAILURE])
        return outcome

    async def _attempt(self, feed: Feed) -> tuple[Outcome | None, str]:
        """Return the outcome, None if the feed was not updated, and the failure if there was one."""
        outcome = None
        try:
            async with asyncio.timeout(RUN_SECONDS):
                outcome = await self._service.run(feed)
                reported = await report_sightings(feed, self._service.store, self._http, self._service.credential(feed))
        except TimeoutError:
            return outcome, f"The run did not end within {RUN_SECONDS:.0f} seconds."
        except MailwardenError as error:
            return outcome, error.message
        except Exception as error:  # a feed that breaks us must not stop the others
            _log.exception("feed_crashed", feed=feed.name, tenant=str(feed.tenant or ""))
            return outcome, f"Internal error: {type(error).__name__}."
        _log.info("feed_run", feed=feed.name, tenant=str(feed.tenant or ""), outcome=outcome, sightings=reported)
        return outcome, ""
