"""The scan source `restApi`: receives messages from abby, and streams the progress of an analysis if abby asks for it.

With progress, guard writes one line as each analyzer finishes, and the result as the last line. It writes nothing
before the first analyzer has finished, so that a rejection still has its own status and abby can ask another guard.
Later errors are a last line of their own: a truncated answer is never taken for a result.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from aiohttp import web
from msgspec import Raw

from mailwarden.errors import InternalError, MailwardenError
from mailwarden.hop.records import (
    MEDIA_TYPE,
    REST_API,
    AnalysisDone,
    AnalysisFailed,
    ProgressLine,
    done_by,
    scan_of,
    write_line,
)
from mailwarden.hop.scan_body import receive_scan, scan_body_size
from mailwarden.journal.records import encode_plain
from mailwarden.model.evidence import Report
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.pipeline.examination import Observer
from mailwarden.scan.admission import Admission
from mailwarden.scan.scan import Processing
from mailwarden.serving.http_app import Call, finish_headers
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.periodic_task import end_tasks
from mailwarden.telemetry.tracing import TRACEPARENT, Tracing
from mailwarden.wire.scanning import encode_result

WRITE_SECONDS = 10.0  # abby reads at once or is gone; a slow reader must not hold capacity
log = get_logger(__name__)
Work = Callable[[Observer], Awaitable[FinishedRequest]]
BODY_TIMEOUT_MS = 30_000
_JSON = {"Content-Type": "application/json"}


async def answer_with_progress(call: Call, work: Work) -> web.StreamResponse:
    """Run the analysis, and stream its progress line by line."""
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
            await _write(call, response, done_by(report))
        await _write(call, response, await _last_line(working, response))
        await response.write_eof()
    finally:
        await end_tasks(working)
    return response


async def _last_line(working: asyncio.Task[FinishedRequest], response: web.StreamResponse) -> ProgressLine:
    """Return the last line; before the first line raise the error, which then has its own status."""
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
    return AnalysisDone(Raw(encode_plain(finished)))


async def _write(call: Call, response: web.StreamResponse, line: ProgressLine) -> None:
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            if not response.prepared:
                finish_headers(response, call.request_id, call.request.path, call.headers)
                await response.prepare(call.request)
            await response.write(write_line(line))
    except TimeoutError:
        raise ConnectionResetError("The caller stopped reading.") from None


class RestApi:
    name = REST_API

    def __init__(self, admission: Admission, processing: Processing, spool: Path, tracing: Tracing) -> None:
        self._admission = admission
        self._processing = processing
        self._spool = spool
        self._tracing = tracing

    async def submit(self, call: Call) -> web.StreamResponse:
        """Answer one submission, as a part of abby's trace if there is one; admission comes before the body is read."""
        with self._tracing.span("receive", parent=call.request.headers.get(TRACEPARENT, "")):
            async with self._admission.admitted(scan_body_size(call.request)):
                head, message = await receive_scan(call.request, self._spool, body_timeout_ms=BODY_TIMEOUT_MS)
                try:
                    return await self._answer(call, scan_of(head, message, self.name, call.request_id))
                finally:
                    message.close()

    async def scan(self, scan: Scan, observe: Observer, traceparent: str) -> FinishedRequest:
        """Scan a message of abby in this process, admitted like a submission."""
        with self._tracing.span("receive", parent=traceparent):
            async with self._admission.admitted(scan.message.size):
                return await self._processing.answer(scan, observe)

    async def _answer(self, call: Call, scan: Scan) -> web.StreamResponse:
        if scan.watched:
            return await answer_with_progress(call, partial(self._processing.answer, scan))
        return web.Response(body=encode_result(await self._processing.answer(scan)), headers=_JSON)
