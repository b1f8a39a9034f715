"""Brings a message to a guard and its result back: the least loaded first, the next where one refuses or dies.

A refusal costs the guard nothing, so all guards may be asked. A guard that took the message and did not answer may
have died of it, so at most two are given one message. Every attempt carries the same ggrid: history keeps one row.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from ssl import SSLContext
from uuid import UUID

import aiohttp
import msgspec
from aiohttp import hdrs

from mailwarden.abby.guards import Guard, GuardWatch
from mailwarden.errors import (
    AnalysisTimeout,
    CoreError,
    CoreUnreachable,
    EngineUnavailable,
    MailwardenError,
    Overloaded,
    ScanningDisabled,
    ShuttingDown,
)
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import Assignment
from mailwarden.serving.uploads import Upload
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.wire.guard import (
    DEADLINE_HEADER,
    GGRID_HEADER,
    PROFILE_HEADER,
    REQUEST_ID_HEADER,
    SUBMIT_PATH,
    TENANT_BY_HEADER,
    TENANT_HEADER,
)
from mailwarden.wire.scanning import ErrorBody, MessageAnalysisResult

CONNECT_SECONDS = 2.0
ASK_FIRST_ABOVE = 262_144  # a larger body waits for the guard's consent, so that a refusal costs no upload
MAX_ANSWER = 1_048_576
MAX_GUARDS_THAT_SEE_A_MESSAGE = 2
_KEEP_ALIVE = 60.0  # shorter than the guards' own, so that a connection is not reused while it is being closed

# What guards refuse with, the one to answer first: the fuller the truth for the caller, the higher.
_REFUSALS: Mapping[str, type[MailwardenError]] = {
    error.code: error for error in (Overloaded, EngineUnavailable, ScanningDisabled, ShuttingDown)
}

_DECISIONS = frozenset(Decision)
_VERDICTS = frozenset(Verdict)

log = get_logger("guard_client")
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


def open_session(tls: SSLContext) -> aiohttp.ClientSession:
    """Return the pool of connections to the guards; abby bounds it by the uploads it takes."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls, limit=0, keepalive_timeout=_KEEP_ALIVE),
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT),
    )


class GuardClient:
    def __init__(self, session: aiohttp.ClientSession, watch: GuardWatch, metrics: Metrics) -> None:
        self._session = session
        self._watch = watch
        self._failures = metrics.counter("guard_failures", "Attempts that a guard did not answer.", "guard", "kind")

    def require_room(self) -> None:
        """Raise Overloaded where it is certain that no guard would take a message."""
        self._watch.require_room()

    async def submit(
        self, upload: Upload, ggrid: UUID, assignment: Assignment, request_id: str, deadline: float
    ) -> MessageAnalysisResult:
        """Return the result of the analysis; `deadline` is a moment of the loop's clock."""
        headers = {
            hdrs.CONTENT_TYPE: upload.content_type,
            GGRID_HEADER: str(ggrid),
            REQUEST_ID_HEADER: request_id,
            TENANT_HEADER: str(assignment.tenant),
            TENANT_BY_HEADER: assignment.by,
            PROFILE_HEADER: assignment.profile,
        }
        try:
            async with asyncio.timeout_at(deadline):
                return await self._try_guards(upload, ggrid, headers, deadline)
        except TimeoutError:
            raise AnalysisTimeout("The analysis took longer than longRequestTimeout allows.") from None

    async def _try_guards(
        self, upload: Upload, ggrid: UUID, headers: dict[str, str], deadline: float
    ) -> MessageAnalysisResult:
        waiting = self._watch.candidates()
        refusals: list[MailwardenError] = []
        deaths: list[tuple[Guard, MailwardenError]] = []
        while len(deaths) < MAX_GUARDS_THAT_SEE_A_MESSAGE:
            if not waiting and deaths and all(isinstance(error, CoreUnreachable) for error in refusals):
                waiting.append(deaths[0][0])  # nobody else is left: a guard that came back deserves the second try
            if not waiting:
                break
            guard = waiting.pop(0)
            try:
                return await self._send(guard, upload, ggrid, headers, deadline)
            except Refused as refused:
                self._note(guard, refused.error.code)
                refusals.append(refused.error)
                if deaths and guard is deaths[0][0]:
                    break
            except Died as died:
                self._note(guard, died.kind)
                deaths.append((guard, died.error))
        raise worst_of(refusals, [error for _, error in deaths])

    async def _send(
        self, guard: Guard, upload: Upload, ggrid: UUID, headers: dict[str, str], deadline: float
    ) -> MessageAnalysisResult:
        assert upload.body is not None
        remaining = max(1, int((deadline - asyncio.get_running_loop().time()) * 1000))
        body: bytes | AsyncIterator[bytes] = upload.body.data() if upload.body.in_memory else upload.body.stream()
        guard.in_flight += 1
        try:
            async with self._session.post(
                guard.address + SUBMIT_PATH,
                data=body,
                headers={**headers, DEADLINE_HEADER: str(remaining), hdrs.CONTENT_LENGTH: str(upload.body.size)},
                expect100=upload.body.size > ASK_FIRST_ABOVE,
                allow_redirects=False,
            ) as response:
                return result_in(response.status, await _read_answer(response), ggrid, _pause_in(response))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise Refused(CoreUnreachable("No guard can be reached; try again.")) from None
        except (aiohttp.ClientError, OSError) as error:
            gone = CoreUnreachable("The guard went away before it answered; try again.")
            raise Died(gone, type(error).__name__) from None
        finally:
            guard.in_flight -= 1

    def _note(self, guard: Guard, kind: str) -> None:
        self._failures.labels(guard.name, kind).inc()
        log.warning("guard did not answer", guard=guard.name, kind=kind)


async def _read_answer(response: aiohttp.ClientResponse) -> bytes:
    raw = b""
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > MAX_ANSWER:
            raise Died(_nonsense(), "answer too large")
    return raw


def _pause_in(response: aiohttp.ClientResponse) -> int | None:
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
        refusal = _REFUSALS[error]("Every guard refused the message for now; try again.", retry_after=retry_after)
        raise Refused(refusal)
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
