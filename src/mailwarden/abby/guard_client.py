"""Sends a message to a guard and returns its result: the least loaded guard first, the next if one rejects or fails.

A rejection costs the guard nothing, so all guards may be asked. A guard that accepted the message and did not answer
may have crashed because of it, so at most two guards get one message. Every attempt has the same ggrid: history keeps
one row.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from ssl import SSLContext
from typing import TypeVar
from uuid import UUID

import aiohttp
import msgspec
from aiohttp import hdrs
from msgspec import Struct

from mailwarden.abby.guards import Guard, GuardWatch
from mailwarden.errors import (
    AnalysisTimeout,
    CoreError,
    CoreUnreachable,
    EngineUnavailable,
    Forbidden,
    MailwardenError,
    Overloaded,
    ScanningDisabled,
    ShuttingDown,
)
from mailwarden.history.records import decode
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import RecipientGroup
from mailwarden.serving.uploads import Upload
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.tracing import NO_TRACING, TRACEPARENT, Tracing
from mailwarden.wire.guard import (
    DEADLINE_HEADER,
    GGRID_HEADER,
    GROUPS_HEADER,
    MAX_LINE,
    PROGRESS_HEADER,
    REQUEST_ID_HEADER,
    STORE_HEADER,
    SUBMIT_PATH,
    AnalysisDone,
    AnalysisFailed,
    AnalyzerDone,
    read_line,
    write_groups,
)
from mailwarden.wire.scanning import ErrorBody, MessageAnalysisResult

MAX_ANSWER = 1_048_576
MAX_LINES = 100  # one line per analyzer, with room
DISABLED = "Scanning is disabled: no guard has scanSources.restApi in guard.yml. An operator has to enable it."
REJECTED = "A guard rejects abby's certificate. Add a name of it to tls.clientNames in guard.yml."

# Errors of guards, the most informative for the caller first.
_REFUSALS: Mapping[str, type[MailwardenError]] = {
    error.code: error for error in (Overloaded, EngineUnavailable, ScanningDisabled, ShuttingDown)
}

_DECISIONS = frozenset(Decision)
_VERDICTS = frozenset(Verdict)

_decode_result = msgspec.json.Decoder(MessageAnalysisResult).decode
_decode_error = msgspec.json.Decoder(ErrorBody).decode


class Refused(Exception):
    """The guard rejected the message before it accepted it."""

    def __init__(self, error: MailwardenError) -> None:
        super().__init__(error.code)
        self.error = error


class Died(Exception):
    """The guard accepted the message, or may have, and gave no usable answer."""

    def __init__(self, error: MailwardenError, kind: str) -> None:
        super().__init__(kind)
        self.error = error
        self.kind = kind


@contextmanager
def guard_errors() -> Iterator[None]:
    """Map a connection error to Refused before the message was sent, and to Died after."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise Refused(CoreUnreachable("No guard can be reached; try again.")) from None
    except (aiohttp.ClientError, OSError) as error:
        gone = CoreUnreachable("The guard closed the connection before it answered; try again.")
        raise Died(gone, type(error).__name__) from None


async def read_answer(response: aiohttp.ClientResponse) -> bytes:
    raw = b""
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > MAX_ANSWER:
            raise Died(_malformed_answer(), "answer too large")
    return raw


def retry_after_in(response: aiohttp.ClientResponse) -> int | None:
    seconds = response.headers.get("Retry-After", "")
    return int(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 4 else None


def result_in(status: int, raw: bytes, ggrid: UUID, retry_after: int | None = None) -> MessageAnalysisResult:
    """Return the result in a guard's answer, or raise its error."""
    try:
        if status == 200:
            result = _decode_result(raw)
            if result.ggrid == ggrid and result.decision in _DECISIONS and result.verdict in _VERDICTS:
                return result
            raise Died(_malformed_answer(), "wrong result")
        error = _decode_error(raw).error
    except (msgspec.MsgspecError, ValueError):
        raise Died(_malformed_answer(), "not an answer") from None
    if status == 503 and error in _REFUSALS:
        sentence = DISABLED if error == ScanningDisabled.code else "Every guard refused the message for now; try again."
        raise Refused(_REFUSALS[error](sentence, retry_after=retry_after))
    if status == 403 and error == Forbidden.code:
        raise Refused(CoreError(REJECTED))
    if status == 504 and error == AnalysisTimeout.code:
        raise AnalysisTimeout("The analysis was not finished in time.")
    raise Died(_malformed_answer(), f"status {status} {error}"[:60])


def _malformed_answer() -> CoreError:
    return CoreError("A guard answered what no guard should; try again.")


def worst_error(refusals: list[MailwardenError], deaths: list[MailwardenError]) -> MailwardenError:
    """Return the most informative error: rejections before failures."""
    for kind in _REFUSALS.values():
        for error in refusals:
            if isinstance(error, kind):
                return error
    return [*deaths, *refusals, CoreUnreachable("No guard can be reached; try again.")][0]


class ProgressReader:
    """Reads the lines of a watched analysis; it reads the first ahead, so that another guard can still be asked."""

    def __init__(self, content: aiohttp.StreamReader, ggrid: UUID) -> None:
        self._content = content
        self._ggrid = ggrid
        self._buffer = b""
        self._ahead: AnalyzerDone | FinishedRequest | None = None
        self._lines = 0

    async def look_ahead(self) -> None:
        """Wait for the first line; raise Died without one."""
        try:
            self._ahead = await self.next()
        except (CoreError, CoreUnreachable) as error:
            raise Died(error, "no progress") from None

    async def next(self) -> AnalyzerDone | FinishedRequest:
        """Return the next step; raise the guard's error, or Died if the connection broke."""
        if self._ahead is not None:
            step, self._ahead = self._ahead, None
            return step
        self._lines += 1
        if self._lines > MAX_LINES:
            raise _malformed_answer()
        try:
            line = read_line(await self._next_line())
            if isinstance(line, AnalysisDone):
                return self._finished(line)
        except (msgspec.MsgspecError, ValueError):
            raise _malformed_answer() from None
        if isinstance(line, AnalysisFailed):
            raise _failure(line)
        return line

    async def _next_line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            chunk = await self._content.readany()
            if not chunk:
                raise CoreUnreachable("The guard closed the connection before it finished; try again.")
            self._buffer += chunk
            if len(self._buffer) > MAX_LINE:
                raise _malformed_answer()
        line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        return line

    def _finished(self, line: AnalysisDone) -> FinishedRequest:
        """Return the finished request if its ggrid and its public result match."""
        finished, result = decode(bytes(line.record)), line.result
        answered = (result.ggrid, result.verdict, result.decision)
        if (
            answered != (self._ggrid, finished.judgement.verdict, finished.ruling.decision)
            or finished.ggrid != self._ggrid
        ):
            raise _malformed_answer()
        return finished


def _failure(line: AnalysisFailed) -> MailwardenError:
    """Return the error that ended a watched analysis; no other guard is asked."""
    if line.error == AnalysisTimeout.code:
        return AnalysisTimeout("The analysis was not finished in time.")
    if line.error in _REFUSALS:
        return _REFUSALS[line.error](line.message, retry_after=line.retry_after)
    return CoreError("The guard could not finish the analysis; its log has it by this request id.")


CONNECT_SECONDS = 2.0
ASK_FIRST_ABOVE = 262_144  # a larger body waits for 100 Continue, so that a rejection costs no upload
MAX_GUARDS_THAT_SEE_A_MESSAGE = 2
_KEEP_ALIVE = 60.0  # shorter than the guards' keep-alive, so that a closing connection is not reused

log = get_logger("guard_client")
T = TypeVar("T")
Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ScanUpload:
    """The body of a submission, which can be sent more than once."""

    content_type: str
    size: int
    body: Callable[[], bytes | AsyncIterator[bytes]]


class ScanRequest(Struct, frozen=True):
    """The guard request of an upload: ggrid, recipients by tenant, and the request id of the call."""

    ggrid: UUID
    recipients: tuple[str, ...]
    groups: tuple[RecipientGroup, ...]
    request_id: str


def scan_upload(upload: Upload) -> ScanUpload:
    """Return the upload unchanged: guard accepts the same body as abby."""
    assert upload.body is not None
    return ScanUpload(
        upload.content_type, upload.body.size, upload.body.data if upload.body.in_memory else upload.body.stream
    )


def open_session(tls: SSLContext) -> aiohttp.ClientSession:
    """Return the connection pool to the guards; `maxUploads` limits it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls, limit=0, keepalive_timeout=_KEEP_ALIVE),
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT),
    )


class GuardClient:
    def __init__(
        self, session: aiohttp.ClientSession, watch: GuardWatch, metrics: Metrics, tracing: Tracing = NO_TRACING
    ) -> None:
        self._session = session
        self._tracing = tracing
        self._watch = watch
        self._failures = metrics.counter("guard_failures", "Attempts that a guard did not answer.", "guard", "kind")

    def require_room(self) -> None:
        """Raise Overloaded if every guard would certainly reject a message."""
        self._watch.require_room()

    async def submit(self, received: Upload, scan_request: ScanRequest, deadline: float) -> MessageAnalysisResult:
        """Return the result of the analysis; `deadline` is a time of the event loop's clock."""
        upload = scan_upload(received)
        headers = headers_for(upload, scan_request)

        async def send(guard: Guard) -> MessageAnalysisResult:
            with self._tracing.span("guard request", guard=guard.name) as span, guard_errors():
                traced = [*headers, (TRACEPARENT, span.traceparent)] if span.traceparent else headers
                async with self._posted(guard, upload, traced, deadline) as response:
                    return result_in(
                        response.status, await read_answer(response), scan_request.ggrid, retry_after_in(response)
                    )

        try:
            with self._tracing.span("submit", ggrid=str(scan_request.ggrid), bytes=upload.size):
                async with asyncio.timeout_at(deadline):
                    return await self._try_guards(send)
        except TimeoutError:
            raise _too_long() from None

    async def watch(
        self, upload: ScanUpload, scan_request: ScanRequest, deadline: float, *, stored: bool
    ) -> AsyncGenerator[AnalyzerDone | FinishedRequest, None]:
        """Yield each analyzer's result as it finishes, and the finished request last.

        Another guard is asked only before the first line; later failures raise.
        """
        headers = headers_for(upload, scan_request)
        headers += [(PROGRESS_HEADER, "yes"), (STORE_HEADER, "yes" if stored else "no")]
        async with AsyncExitStack() as stack:

            async def begin(guard: Guard) -> ProgressReader:
                with guard_errors():
                    async with AsyncExitStack() as trial:
                        response = await trial.enter_async_context(self._posted(guard, upload, headers, deadline))
                        if response.status != 200:
                            result_in(
                                response.status,
                                await read_answer(response),
                                scan_request.ggrid,
                                retry_after_in(response),
                            )
                        reader = ProgressReader(response.content, scan_request.ggrid)
                        await reader.look_ahead()
                        stack.push_async_exit(trial.pop_all())
                        return reader

            try:
                async with asyncio.timeout_at(deadline):
                    reader = await self._try_guards(begin)
                while True:
                    async with asyncio.timeout_at(deadline):
                        step = await reader.next()
                    yield step
                    if isinstance(step, FinishedRequest):
                        return
            except TimeoutError:
                raise _too_long() from None
            except (aiohttp.ClientError, OSError):
                raise CoreUnreachable("The guard closed the connection before it finished; try again.") from None

    async def _try_guards(self, attempt: Callable[[Guard], Awaitable[T]]) -> T:
        waiting = self._watch.candidates()
        refusals: list[MailwardenError] = []
        deaths: list[tuple[Guard, MailwardenError]] = []
        while len(deaths) < MAX_GUARDS_THAT_SEE_A_MESSAGE:
            if not waiting and deaths and all(isinstance(error, CoreUnreachable) for error in refusals):
                waiting.append(deaths[0][0])  # no other guard is left: try one that recovered a second time
            if not waiting:
                break
            guard = waiting.pop(0)
            try:
                return await attempt(guard)
            except Refused as refused:
                self._note(guard, refused.error.code)
                refusals.append(refused.error)
                if deaths and guard is deaths[0][0]:
                    break
            except Died as died:
                self._note(guard, died.kind)
                deaths.append((guard, died.error))
        raise worst_error(refusals, [error for _, error in deaths])

    @asynccontextmanager
    async def _posted(
        self, guard: Guard, upload: ScanUpload, headers: Headers, deadline: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send the upload to the guard; it counts as load until the answer is read."""
        remaining = max(1, int((deadline - asyncio.get_running_loop().time()) * 1000))
        sent = [*headers, (DEADLINE_HEADER, str(remaining)), (hdrs.CONTENT_LENGTH, str(upload.size))]
        guard.in_flight += 1
        try:
            async with self._session.post(
                guard.address + SUBMIT_PATH,
                data=upload.body(),
                headers=sent,
                expect100=upload.size > ASK_FIRST_ABOVE,
                allow_redirects=False,
            ) as response:
                yield response
        finally:
            guard.in_flight -= 1

    def _note(self, guard: Guard, kind: str) -> None:
        self._failures.labels(guard.name, kind).inc()
        log.warning("guard_request_failed", guard=guard.name, kind=kind)


def headers_for(upload: ScanUpload, scan_request: ScanRequest) -> Headers:
    """Return the headers of a guard request; the recipients by tenant may need several headers."""
    groups = write_groups(scan_request.groups, scan_request.recipients)
    return [
        (hdrs.CONTENT_TYPE, upload.content_type),
        (GGRID_HEADER, str(scan_request.ggrid)),
        (REQUEST_ID_HEADER, scan_request.request_id),
        *((GROUPS_HEADER, piece) for piece in groups),
    ]


def _too_long() -> AnalysisTimeout:
    return AnalysisTimeout("The analysis took longer than longRequestTimeout allows.")
