"""The scan source `restApi`: receives messages from abby, and streams the progress of an analysis if abby asks for it.

With progress, guard writes one line as each analyzer finishes, and the result as the last line. It writes nothing
before the first analyzer has finished, so that a rejection still has its own status and abby can ask another guard.
Later errors are a last line of their own: a truncated answer is never taken for a result.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from uuid import UUID

import msgspec
import structlog
from aiohttp import web
from msgspec import Raw

from mailwarden.errors import InternalError, MailwardenError
from mailwarden.hop.local_guard import LocalScan
from mailwarden.hop.records import (
    MEDIA_TYPE,
    AnalysisDone,
    AnalysisFailed,
    ProgressLine,
    done_by,
    write_line,
)
from mailwarden.hop.scan_body import ReceivedScan, receive_scan, scan_body_size
from mailwarden.journal.records import encode_plain
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Report
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import RecipientGroup
from mailwarden.pipeline.examination import Observer
from mailwarden.scan.admission import Admission
from mailwarden.scan.scan import GuardRequest, Processing
from mailwarden.serving.http_app import Call, finish_headers
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.periodic_task import end_tasks
from mailwarden.telemetry.tracing import TRACEPARENT, Tracing
from mailwarden.wire.scanning import result_of

WRITE_SECONDS = 10.0  # abby reads at once or is gone; a slow reader must not hold capacity
log = get_logger(__name__)
Work = Callable[[Observer], Awaitable[FinishedRequest]]
BODY_TIMEOUT_MS = 30_000
_JSON = {"Content-Type": "application/json"}
_encode = msgspec.json.Encoder().encode


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
    return AnalysisDone(result_of(finished), Raw(encode_plain(finished)))


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
    name = "restApi"

    def __init__(
        self, admission: Admission, processing: Processing, spool: Path, analysis_timeout: float, tracing: Tracing
    ) -> None:
        self._admission = admission
        self._processing = processing
        self._spool = spool
        self._analysis_timeout = analysis_timeout
        self._tracing = tracing

    async def submit(self, call: Call) -> web.StreamResponse:
        """Answer one submission, as a part of abby's trace if there is one."""
        with self._tracing.span("receive", parent=call.request.headers.get(TRACEPARENT, "")):
            return await self._submit(call)

    async def scan(self, scan: LocalScan, observe: Observer) -> FinishedRequest:
        """Scan a message of abby in this process; admission and deadline are those of a submission."""
        with self._tracing.span("receive", parent=scan.traceparent):
            async with self._admission.admitted(scan.message.size):
                guard_request = self._request(
                    scan.ggrid, scan.envelope, scan.groups, scan.message, seconds=scan.seconds, stored=scan.stored
                )
                return await self._processing.process(guard_request, observe)

    async def _submit(self, call: Call) -> web.StreamResponse:
        """Admission happens before the body is read."""
        async with self._admission.admitted(scan_body_size(call.request)):
            received = await receive_scan(call.request, self._spool, body_timeout_ms=BODY_TIMEOUT_MS)
            try:
                return await self._answer(call, received)
            finally:
                received.message.close()

    async def _answer(self, call: Call, received: ReceivedScan) -> web.StreamResponse:
        head = received.head
        structlog.contextvars.bind_contextvars(ggrid=str(head.ggrid))
        guard_request = self._request(
            head.ggrid,
            received.envelope,
            received.groups,
            received.message,
            seconds=head.deadline_ms / 1000,
            stored=head.stored,
        )
        if head.watched:
            return await answer_with_progress(call, partial(self._processing.process, guard_request))
        finished = await self._processing.process(guard_request)
        return web.Response(body=_encode(result_of(finished)), headers=_JSON)

    def _request(
        self,
        ggrid: UUID,
        envelope: Envelope,
        groups: tuple[RecipientGroup, ...],
        raw: Spooled,
        *,
        seconds: float,
        stored: bool,
    ) -> GuardRequest:
        """Return the guard request for a message of abby; it may take no more than the analysis timeout."""
        deadline = min(seconds, self._analysis_timeout)
        return GuardRequest(
            ggrid=ggrid, source=self.name, envelope=envelope, groups=groups, raw=raw, deadline=deadline, stored=stored
        )
