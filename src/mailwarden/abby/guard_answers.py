"""What a guard's answer means: a result, a refusal, a death, or one line of an analysis that is being watched."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

import aiohttp
import msgspec

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
from mailwarden.wire.progress import MAX_LINE, AnalysisDone, AnalysisFailed, AnalyzerDone, read_line
from mailwarden.wire.scanning import ErrorBody, MessageAnalysisResult

MAX_ANSWER = 1_048_576
MAX_LINES = 100  # there are a dozen analyzers
DISABLED = "Scanning is disabled: no guard has scanSources.restApi in guard.yml. An operator has to enable it."
REJECTED = "A guard rejects abby's certificate. Add a name of it to tls.clientNames in guard.yml."

# What guards refuse with, the one to answer first: the fuller the truth for the caller, the higher.
_REFUSALS: Mapping[str, type[MailwardenError]] = {
    error.code: error for error in (Overloaded, EngineUnavailable, ScanningDisabled, ShuttingDown)
}

_DECISIONS = frozenset(Decision)
_VERDICTS = frozenset(Verdict)

_decode_result = msgspec.json.Decoder(MessageAnalysisResult).decode
_decode_error = msgspec.json.Decoder(ErrorBody).decode


class Refused(Exception):
    """The guard did not take the message."""

    def __init__(self, error: MailwardenError) -> None:
        super().__init__(error.code)
        self.error = error


class Died(Exception):
    """The guard took the message, or may have, and gave no usable answer."""

    def __init__(self, error: MailwardenError, kind: str) -> None:
        super().__init__(kind)
        self.error = error
        self.kind = kind


@contextmanager
def blamed() -> Iterator[None]:
    """Say of a broken connection whether the guard refused the message or died, perhaps of it."""
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
            raise Died(_nonsense(), "answer too large")
    return raw


def pause_in(response: aiohttp.ClientResponse) -> int | None:
    seconds = response.headers.get("Retry-After", "")
    return int(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 4 else None


def result_in(status: int, raw: bytes, ggrid: UUID, retry_after: int | None = None) -> MessageAnalysisResult:
    """Return the result that a guard's answer holds, or raise what the answer means."""
    try:
        if status == 200:
            result = _decode_result(raw)
            if result.ggrid == ggrid and result.decision in _DECISIONS and result.verdict in _VERDICTS:
                return result
            raise Died(_nonsense(), "wrong result")
        error = _decode_error(raw).error
    except (msgspec.MsgspecError, ValueError):
        raise Died(_nonsense(), "not an answer") from None
    if status == 503 and error in _REFUSALS:
        sentence = DISABLED if error == ScanningDisabled.code else "Every guard refused the message for now; try again."
        raise Refused(_REFUSALS[error](sentence, retry_after=retry_after))
    if status == 403 and error == Forbidden.code:
        raise Refused(CoreError(REJECTED))
    if status == 504 and error == AnalysisTimeout.code:
        raise AnalysisTimeout("The analysis was not finished in time.")
    raise Died(_nonsense(), f"status {status} {error}"[:60])


def _nonsense() -> CoreError:
    return CoreError("A guard answered what no guard should; try again.")


def worst_of(refusals: list[MailwardenError], deaths: list[MailwardenError]) -> MailwardenError:
    """Return the error that tells the caller most: who refused may take it later, who died may not."""
    for kind in _REFUSALS.values():
        for error in refusals:
            if isinstance(error, kind):
                return error
    return [*deaths, *refusals, CoreUnreachable("No guard can be reached; try again.")][0]


class ProgressReader:
    """Reads the lines of a watched analysis; the first is looked at ahead, so that another guard can still be asked."""

    def __init__(self, content: aiohttp.StreamReader, ggrid: UUID) -> None:
        self._content = content
        self._ggrid = ggrid
        self._buffer = b""
        self._ahead: AnalyzerDone | FinishedRequest | None = None
        self._lines = 0

    async def look_ahead(self) -> None:
        """Wait for the first line; without one, the guard died."""
        try:
            self._ahead = await self.next()
        except (CoreError, CoreUnreachable) as error:
            raise Died(error, "no progress") from None

    async def next(self) -> AnalyzerDone | FinishedRequest:
        """Return the next step; raise what the guard says went wrong, or that it went away."""
        if self._ahead is not None:
            step, self._ahead = self._ahead, None
            return step
        self._lines += 1
        if self._lines > MAX_LINES:
            raise _nonsense()
        try:
            line = read_line(await self._next_line())
            if isinstance(line, AnalysisDone):
                return self._finished(line)
        except (msgspec.MsgspecError, ValueError):
            raise _nonsense() from None
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
                raise _nonsense()
        line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        return line

    def _finished(self, line: AnalysisDone) -> FinishedRequest:
        """Return the finished request, if it is the one asked for and says the same as its public result."""
        finished, result = decode(bytes(line.record)), line.result
        said = (result.ggrid, result.verdict, result.decision)
        if said != (self._ggrid, finished.judgement.verdict, finished.ruling.decision) or finished.ggrid != self._ggrid:
            raise _nonsense()
        return finished


def _failure(line: AnalysisFailed) -> MailwardenError:
    """Return the error that a watched analysis ended with; nobody else is asked then."""
    if line.error == AnalysisTimeout.code:
        return AnalysisTimeout("The analysis was not finished in time.")
    if line.error in _REFUSALS:
        return _REFUSALS[line.error](line.message, retry_after=line.retry_after)
    return CoreError("The guard could not finish the analysis; its log has it by this request id.")
