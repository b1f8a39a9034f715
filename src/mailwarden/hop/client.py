"""Sends a message to a guard and returns its result; asks the next guard if one rejects or fails.

A rejection costs the guard little, so several guards may be asked, as far as the retry budget allows. A guard that
accepted the message and did not answer may have crashed because of it, so at most two guards get one message. Every
attempt has the same ggrid: history keeps one row.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

from mailwarden.errors import AnalysisTimeout, CoreUnreachable, EngineUnavailable, MailwardenError, Overloaded
from mailwarden.hop.guard_choice import MAX_REJECTIONS, LeastLoadedOfTwo, RetryBudget
from mailwarden.hop.guards import Guard, GuardWatch
from mailwarden.hop.records import AnalyzerDone
from mailwarden.hop.transport import REFUSALS, Died, Progress, Refused
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.tracing import NO_TRACING, Tracing

MAX_GUARDS_THAT_SEE_A_MESSAGE = 2

log = get_logger("guard_client")
T = TypeVar("T")


def worst_error(refusals: list[MailwardenError], deaths: list[MailwardenError]) -> MailwardenError:
    """Return the most informative error: rejections before failures."""
    for kind in REFUSALS.values():
        for error in refusals:
            if isinstance(error, kind):
                return error
    return [*deaths, *refusals, CoreUnreachable("No guard can be reached; try again.")][0]


class GuardClient:
    def __init__(
        self,
        watch: GuardWatch,
        metrics: Metrics,
        tracing: Tracing = NO_TRACING,
        *,
        chooser: LeastLoadedOfTwo | None = None,
        budget: RetryBudget | None = None,
    ) -> None:
        self._tracing = tracing
        self._chooser = chooser or LeastLoadedOfTwo()
        self._budget = budget or RetryBudget()
        self._watch = watch
        self._failures = metrics.counter("guard_failures", "Attempts that a guard did not answer.", "guard", "kind")

    def require_room(self) -> None:
        """Raise Overloaded if every guard would certainly reject a message."""
        self._watch.require_room()

    async def submit(self, scan: Scan) -> bytes:
        """Return the result of the analysis, as guard encoded it."""

        async def send(guard: Guard) -> bytes:
            with self._tracing.span("guard request", guard=guard.name) as span, guard.loaded():
                return await guard.transport.submit(scan, span.traceparent)

        try:
            with self._tracing.span("submit", ggrid=str(scan.ggrid), bytes=scan.message.size):
                async with asyncio.timeout_at(scan.deadline):
                    return await self._try_guards(send)
        except TimeoutError:
            raise _too_long() from None

    async def watch(self, scan: Scan) -> AsyncGenerator[AnalyzerDone | FinishedRequest, None]:
        """Yield each analyzer's result as it finishes, and the finished request last.

        Another guard is asked only before the first step; later failures raise.
        """
        async with AsyncExitStack() as stack:

            async def begin(guard: Guard) -> Progress:
                async with AsyncExitStack() as trial:
                    trial.enter_context(guard.loaded())
                    watched = guard.transport.watch(scan)
                    progress = await trial.enter_async_context(watched)
                    stack.push_async_exit(trial.pop_all())
                    return progress

            try:
                async with asyncio.timeout_at(scan.deadline):
                    progress = await self._try_guards(begin)
                while True:
                    async with asyncio.timeout_at(scan.deadline):
                        step = await progress.next()
                    yield step
                    if isinstance(step, FinishedRequest):
                        return
            except TimeoutError:
                raise _too_long() from None

    async def _try_guards(self, attempt: Callable[[Guard], Awaitable[T]]) -> T:
        guards = self._watch.guards
        order = self._chooser.order(guards)
        self._budget.add_message()
        refusals: list[MailwardenError] = []
        deaths: list[tuple[Guard, MailwardenError]] = []
        while len(deaths) < MAX_GUARDS_THAT_SEE_A_MESSAGE:
            guard = next(order, None)
            if guard is None and deaths and all(isinstance(error, CoreUnreachable) for error in refusals):
                guard = deaths[0][0]  # no other guard is left: try one that recovered a second time
            if guard is None:
                break
            try:
                result = await attempt(guard)
            except Refused as refused:
                self._note(guard, refused.error.code)
                refusals.append(refused.error)
                if deaths and guard is deaths[0][0]:
                    break
                if not self._may_ask_another(guard, refused.error, refusals):
                    break
            except Died as died:
                self._note(guard, died.kind)
                self._chooser.note_failure(guards, guard, accepted=True)
                deaths.append((guard, died.error))
            else:
                self._chooser.note_success(guard)
                return result
        raise worst_error(refusals, [error for _, error in deaths])

    def _may_ask_another(self, guard: Guard, error: MailwardenError, refusals: Sequence[MailwardenError]) -> bool:
        """Return whether a refused message may ask another guard; overload and whole analyses need a limit."""
        if isinstance(error, Overloaded):
            return self._budget.take(sum(isinstance(refusal, Overloaded) for refusal in refusals))
        was_analyzed = isinstance(error, EngineUnavailable)
        self._chooser.note_failure(self._watch.guards, guard, accepted=was_analyzed)
        return sum(isinstance(refusal, EngineUnavailable) for refusal in refusals) < MAX_REJECTIONS

    def _note(self, guard: Guard, kind: str) -> None:
        self._failures.labels(guard.name, kind).inc()
        log.warning("guard_request_failed", guard=guard.name, kind=kind)


def _too_long() -> AnalysisTimeout:
    return AnalysisTimeout("The analysis took longer than longRequestTimeout allows.")
