"""Answers one submission with its progress: a line as each analyzer finishes, and the result as the last line.

Nothing is written before the first analyzer has finished, so that a refusal is still an answer with its own status and
another guard can be asked. From then on trouble is a last line that says so: a cut answer is never taken for a result.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from msgspec import Raw

from mailwarden.analysis.pipeline.collector import Observer
from mailwarden.errors import InternalError, MailwardenError
from mailwarden.guard.sources.result import result_of
from mailwarden.history.records import encode
from mailwarden.model.evidence import Report
from mailwarden.model.record import FinishedRequest
from mailwarden.serving.front_door import Call, finish_headers
from mailwarden.telemetry.chore import end_tasks
from mailwarden.telemetry.logs import get_logger
from mailwarden.wire.progress import MEDIA_TYPE, AnalysisDone, AnalysisFailed, ProgressLine, done_by, write_line

WRITE_SECONDS = 10.0  # abby reads at once or is gone; the place in processing is not kept for it

log = get_logger(__name__)

Work = Callable[[Observer], Awaitable[FinishedRequest]]


async def answer_with_progress(call: Call, work: Work) -> web.StreamResponse:
    """Do the work, and tell of it line by line."""
    response = web.StreamResponse(headers={"Content-Type": MEDIA_TYPE})
    reports: asyncio.Queue[Report | None] = asyncio.Queue()

    async def run() -> FinishedRequest:
        try:
            return await work(reports.put_nowait)
        finally:
            reports.put_nowait(None)

    working = asyncio.create_task(run(), name="watched analysis")
    try:
        while (report := await reports.get()) is not None:
            await _tell(call, response, done_by(report))
        await _tell(call, response, await _last_line(working, response))
        await response.write_eof()
    finally:
        await end_tasks(working)
    return response


async def _last_line(working: asyncio.Task[FinishedRequest], response: web.StreamResponse) -> ProgressLine:
    """Return how it ended; before the first line an error is raised, to be answered with its own status."""
    try:
        finished = await working
    except MailwardenError as error:
        if not response.prepared:
            raise
        return AnalysisFailed(error.code, error.message, error.retry_after)
    except Exception:
        if not response.prepared:
            raise
        log.exception("watched_analysis_failed")
        return AnalysisFailed(InternalError.code, "Something went wrong on our side; guard's log has it.")
    return AnalysisDone(result_of(finished), Raw(encode(finished)))


async def _tell(call: Call, response: web.StreamResponse, line: ProgressLine) -> None:
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            if not response.prepared:
                finish_headers(response, call.request_id, call.request.path, call.headers)
                await response.prepare(call.request)
            await response.write(write_line(line))
    except TimeoutError:
        raise ConnectionResetError("The caller stopped reading.") from None
