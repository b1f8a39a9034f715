"""Brings a message to a guard and its result back: the least loaded first, the next where one refuses or dies.

A refusal costs the guard nothing, so all guards may be asked. A guard that took the message and did not answer may
have died of it, so at most two are given one message. Every attempt carries the same ggrid: history keeps one row.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ssl import SSLContext
from typing import TypeVar
from uuid import UUID

import aiohttp
from aiohttp import hdrs
from msgspec import Struct

from mailwarden.abby.guard_answers import (
    Died,
    ProgressReader,
    Refused,
    blamed,
    pause_in,
    read_answer,
    result_in,
    worst_of,
)
from mailwarden.abby.guards import Guard, GuardWatch
from mailwarden.errors import AnalysisTimeout, CoreUnreachable, MailwardenError
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import RecipientGroup
from mailwarden.serving.uploads import Upload
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.wire.guard import (
    DEADLINE_HEADER,
    GGRID_HEADER,
    GROUPS_HEADER,
    PROGRESS_HEADER,
    REQUEST_ID_HEADER,
    STORE_HEADER,
    SUBMIT_PATH,
    write_groups,
)
from mailwarden.wire.progress import AnalyzerDone
from mailwarden.wire.scanning import MessageAnalysisResult

CONNECT_SECONDS = 2.0
ASK_FIRST_ABOVE = 262_144  # a larger body waits for the guard's consent, so that a refusal costs no upload
MAX_GUARDS_THAT_SEE_A_MESSAGE = 2
_KEEP_ALIVE = 60.0  # shorter than the guards' own, so that a connection is not reused while it is being closed

log = get_logger("guard_client")
T = TypeVar("T")
Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Parcel:
    """A submission ready to be sent, as often as it takes."""

    content_type: str
    size: int
    body: Callable[[], bytes | AsyncIterator[bytes]]


class Handover(Struct, frozen=True):
    """Which guard request a parcel is: its id, its recipients by tenant, and the call that it came by."""

    ggrid: UUID
    recipients: tuple[str, ...]
    groups: tuple[RecipientGroup, ...]
    request_id: str


def parcel_of(upload: Upload) -> Parcel:
    """Return an upload as it came: guard takes the same body that abby took."""
    assert upload.body is not None
    return Parcel(
        upload.content_type, upload.body.size, upload.body.data if upload.body.in_memory else upload.body.stream
    )


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

    async def submit(self, upload: Upload, handover: Handover, deadline: float) -> MessageAnalysisResult:
        """Return the result of the analysis; `deadline` is a moment of the loop's clock."""
        parcel = parcel_of(upload)
        headers = headers_for(parcel, handover)

        async def send(guard: Guard) -> MessageAnalysisResult:
            with blamed():
                async with self._posted(guard, parcel, headers, deadline) as response:
                    return result_in(response.status, await read_answer(response), handover.ggrid, pause_in(response))

        try:
            async with asyncio.timeout_at(deadline):
                return await self._try_guards(send)
        except TimeoutError:
            raise _too_long() from None

    async def watch(
        self, parcel: Parcel, handover: Handover, deadline: float, *, stored: bool
    ) -> AsyncGenerator[AnalyzerDone | FinishedRequest, None]:
        """Yield what each analyzer did as it finishes, and the finished request as the last.

        Another guard is asked only where one gave no line yet; afterwards trouble is an error, and no result.
        """
        headers = headers_for(parcel, handover)
        headers += [(PROGRESS_HEADER, "yes"), (STORE_HEADER, "yes" if stored else "no")]
        async with AsyncExitStack() as stack:

            async def begin(guard: Guard) -> ProgressReader:
                with blamed():
                    async with AsyncExitStack() as trial:
                        response = await trial.enter_async_context(self._posted(guard, parcel, headers, deadline))
                        if response.status != 200:
                            result_in(response.status, await read_answer(response), handover.ggrid, pause_in(response))
                        reader = ProgressReader(response.content, handover.ggrid)
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
                waiting.append(deaths[0][0])  # nobody else is left: a guard that came back deserves the second try
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
        raise worst_of(refusals, [error for _, error in deaths])

    @asynccontextmanager
    async def _posted(
        self, guard: Guard, parcel: Parcel, headers: Headers, deadline: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give the guard the parcel; it counts as having it until its answer is read."""
        remaining = max(1, int((deadline - asyncio.get_running_loop().time()) * 1000))
        sent = [*headers, (DEADLINE_HEADER, str(remaining)), (hdrs.CONTENT_LENGTH, str(parcel.size))]
        guard.in_flight += 1
        try:
            async with self._session.post(
                guard.address + SUBMIT_PATH,
                data=parcel.body(),
                headers=sent,
                expect100=parcel.size > ASK_FIRST_ABOVE,
                allow_redirects=False,
            ) as response:
                yield response
        finally:
            guard.in_flight -= 1

    def _note(self, guard: Guard, kind: str) -> None:
        self._failures.labels(guard.name, kind).inc()
        log.warning("guard did not answer", guard=guard.name, kind=kind)


def headers_for(parcel: Parcel, handover: Handover) -> Headers:
    """Return what guard is told besides the upload; the recipients by tenant may take several headers."""
    groups = write_groups(handover.groups, handover.recipients)
    return [
        (hdrs.CONTENT_TYPE, parcel.content_type),
        (GGRID_HEADER, str(handover.ggrid)),
        (REQUEST_ID_HEADER, handover.request_id),
        *((GROUPS_HEADER, piece) for piece in groups),
    ]


def _too_long() -> AnalysisTimeout:
    return AnalysisTimeout("The analysis took longer than longRequestTimeout allows.")
