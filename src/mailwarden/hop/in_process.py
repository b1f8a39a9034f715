"""The transport to a guard in this process: a function call, with the same errors as an HTTPS request."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mailwarden.errors import InternalError, MailwardenError
from mailwarden.hop.local_guard import LocalGuard
from mailwarden.hop.records import AnalyzerDone, done_by
from mailwarden.hop.transport import StatusAnswer, error_in, late_error
from mailwarden.journal.records import decode, encode_plain
from mailwarden.model.evidence import Report
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.serving.errors import retry_after_of, status_of
from mailwarden.settings.effective import Setting
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.periodic_task import end_tasks
from mailwarden.wire.scanning import encode_result

log = get_logger(__name__)


class InProcessTransport:
    """Implements `Transport` by calls."""

    def __init__(self, guard: LocalGuard) -> None:
        self._guard = guard

    async def submit(self, scan: Scan, traceparent: str) -> bytes:
        try:
            return encode_result(await self._guard.scan(scan, _ignore, traceparent))
        except MailwardenError as error:
            raise early_error(error) from None

    @asynccontextmanager
    async def watch(self, scan: Scan) -> AsyncIterator["LocalProgress"]:
        progress = LocalProgress()
        working = asyncio.create_task(progress.run(self._guard, scan), name="watched analysis")
        try:
            await progress.look_ahead()
            yield progress
        finally:
            await end_tasks(working)

    async def status(self) -> StatusAnswer:
        return StatusAnswer(self._guard.status())

    async def settings(self) -> Sequence[Setting]:
        return self._guard.settings()


def early_error(error: MailwardenError) -> Exception:
    """Return what abby makes of a guard's error: the same as of the response that the error would have become."""
    return error_in(status_of(error), error.code, retry_after_of(error))


class LocalProgress:
    """The steps of a watched analysis; the first is awaited ahead, so that another guard can still be asked."""

    def __init__(self) -> None:
        self._steps: asyncio.Queue[AnalyzerDone | FinishedRequest | MailwardenError] = asyncio.Queue()
        self._ahead: AnalyzerDone | FinishedRequest | None = None

    async def run(self, guard: LocalGuard, scan: Scan) -> None:
        def observe(report: Report) -> None:
            self._steps.put_nowait(done_by(report))

        try:
            finished = await guard.scan(scan, observe, "")
            self._steps.put_nowait(decode(encode_plain(finished)))  # as history has it: other code never sees more
        except MailwardenError as error:
            self._steps.put_nowait(error)
        except Exception:
            log.exception("watched_analysis_failed")
            self._steps.put_nowait(InternalError("The result cannot be passed on; the log has it."))

    async def look_ahead(self) -> None:
        """Wait for the first step; an error before it is a rejection or a failure."""
        step = await self._steps.get()
        if isinstance(step, MailwardenError):
            raise early_error(step)
        self._ahead = step

    async def next(self) -> AnalyzerDone | FinishedRequest:
        if self._ahead is not None:
            step, self._ahead = self._ahead, None
            return step
        following = await self._steps.get()
        if isinstance(following, MailwardenError):
            raise late_error(following.code, following.message, following.retry_after)
        return following


def _ignore(_: Report) -> None:
    """Ignore a report: no user watches this analysis."""
