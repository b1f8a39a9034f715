"""Asks the engines about one message: when each of them begins, how long it may take, and what it reports."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Self

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed
from mailwarden.engines.engine import EngineSettings, ScanEngine
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Failure, FailureKind, Report, Status
from mailwarden.model.scan import Flow, RawMessage, Scan
from mailwarden.pipeline.examination import Examination, Observer, skipped
from mailwarden.pipeline.fair_queue import FairQueue, Turn
from mailwarden.pipeline.message_weight import HEAVY_BYTES
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.tracing import Tracing

# Seconds from the structure check on; a message that is not weighed by then is treated as heavy.
_WEIGHING_TIMEOUT = 2.0
_TIMER_TICK = 0.001  # of the event loop's clock

Scanning = ScanEngine[EngineSettings]


class EngineTurns:
    """How many heavy messages one engine is asked about at once; an engine has no priorities of its own."""

    def __init__(self, engine: Scanning, count: int) -> None:
        self._engine = engine
        self._turns = FairQueue([Turn() for _ in range(max(1, count))])

    @asynccontextmanager
    async def turn(self, flow: Flow, until: float) -> AsyncIterator[None]:
        """Wait for the turn of a heavy message; raise EngineFailed if there is none in time."""
        try:
            async with asyncio.timeout(until - time.monotonic()):
                turn = await self._turns.take(flow)
        except TimeoutError:
            sentence = f"{self._engine.name} was not asked in time, because other heavy messages came first."
            raise EngineFailed(FailureKind.TIMEOUT, sentence) from None
        try:
            yield
        finally:
            self._turns.give(turn)


class Question:
    """One engine that is asked about a message, with the statistics of one classifier and the envelope for them."""

    def __init__(
        self,
        engine: Scanning,
        scan: Scan,
        turns: EngineTurns,
        observe: Observer,
        *,
        envelope: Envelope,
        classifier: str = "",
    ) -> None:
        self.engine = engine
        self.scan = scan
        self.envelope = envelope
        self.classifier = classifier
        self.turns = turns
        self.observe = observe
        self.task: asyncio.Task[tuple[Report, EngineAnswer | None]] | None = None
        self.limit = math.inf  # of the current call, by the monotonic clock
        self.late = False

    @property
    def result(self) -> tuple[Report, EngineAnswer | None]:
        assert self.task is not None
        return self.task.result()

    def is_accepted(self, examination: Examination) -> bool:
        """Return whether the engine may be asked: about a message that trips a limit only if it accepts such."""
        return examination.sound or (self.engine.accepts_malformed and examination.scannable)

    def is_heavy(self, examination: Examination) -> bool | None:
        """Return the weight of the message, or None if the worker does not know it yet.

        For an engine that unpacks files it includes what is inside them.
        """
        if self.scan.message.size > HEAVY_BYTES:
            return True
        known = examination.weighed if self.engine.unpacks else examination.parsed
        return examination.heavy if known else None


class Questions:
    """The questions to the engines about one message; each begins once the worker has seen enough of the message.

    One timer holds the deadlines of all calls.
    """

    def __init__(
        self, questions: tuple[Question, ...], examination: Examination, until: float, tracing: Tracing
    ) -> None:
        self._all = questions
        self._waiting = questions
        self._examination = examination
        self._until = until
        self._tracing = tracing
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # steps arrive in the context of the worker's socket
        self._weighed_by = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        """End the questions that are still open."""
        self._waiting = ()
        if self._timer is not None:
            self._timer.cancel()
        if unfinished := [each.task for each in self._all if each.task is not None and not each.task.done()]:
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    def begin_ready(self) -> None:
        """Ask each engine for which the worker has seen enough of the message."""
        if not self._waiting or not self._examination.structure_known:
            return
        now = time.monotonic()
        self._weighed_by = min(self._weighed_by, now + _WEIGHING_TIMEOUT)
        still_waiting = []
        for question in self._waiting:
            heavy = question.is_heavy(self._examination) if question.is_accepted(self._examination) else False
            if heavy is None and now < self._weighed_by:
                still_waiting.append(question)
            else:
                asking = self._ask(question, heavy=heavy is not False)
                question.task = self._loop.create_task(asking, context=self._context.copy())
        self._waiting = tuple(still_waiting)
        if still_waiting:
            self._wake_at(self._weighed_by)

    async def wait(self) -> None:
        """Wait until every engine has answered or failed."""
        for question in self._all:
            assert question.task is not None
            await question.task

    def _wake_at(self, moment: float) -> None:
        if moment < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = moment
            self._timer = self._loop.call_later(max(moment - time.monotonic(), _TIMER_TICK), self._check_time)

    def _check_time(self) -> None:
        """End the calls that are late, and begin what waited for the worker too long."""
        self._timer, self._timer_at = None, math.inf
        now = time.monotonic()
        self.begin_ready()
        for question in self._all:
            if question.limit <= now and question.task is not None:
                question.late, question.limit = True, math.inf
                question.task.cancel()
            elif question.limit < math.inf:
                self._wake_at(question.limit)

    async def _ask(self, question: Question, *, heavy: bool) -> tuple[Report, EngineAnswer | None]:
        engine = question.engine
        with self._tracing.span(engine.name) as span:
            if question.is_accepted(self._examination):
                report, answer = await self._report(question, heavy=heavy)
            else:
                report, answer = skipped(engine.name, required=engine.required), None
            span.set(status=report.status, seconds=report.milliseconds / 1000)
        question.observe(report)
        return report, answer

    async def _report(self, question: Question, *, heavy: bool) -> tuple[Report, EngineAnswer | None]:
        engine, required = question.engine, question.engine.required
        started = time.perf_counter()
        try:
            answer = await self._answer(question, question.scan.message, heavy=heavy)
            took = _milliseconds(started)
            if engine.reads_contents and not answer.findings:
                await self._examination.done.wait()
                # The engine's own reader may have missed the decoded parts of an ambiguous message.
                for content in self._examination.contents:
                    answer = await self._answer(question, Spooled.of(content), heavy=self._examination.heavy)
                    took = _milliseconds(started)
                    if answer.findings:
                        break
        except EngineFailed as error:
            failure = Failure(engine.name, error.kind, error.sentence)
            return Report(engine.name, required, Status.FAILED, _milliseconds(started), (), failure), None
        rest = Failure(engine.name, FailureKind.UNFINISHED, answer.unfinished) if answer.unfinished else None
        findings, convicts = answer.findings, engine.convicts_files
        return Report(engine.name, required, Status.FINISHED, took, findings, rest, answer.engine, convicts), answer

    async def _answer(self, question: Question, raw: RawMessage, *, heavy: bool) -> EngineAnswer:
        """Ask the engine, about a heavy message once it has a turn; raise EngineFailed if it cannot finish in time."""
        if not heavy:
            return await self._call(question, raw)
        async with question.turns.turn(question.scan.flow, self._until):
            return await self._call(question, raw)

    async def _call(self, question: Question, raw: RawMessage) -> EngineAnswer:
        engine = question.engine
        now = time.monotonic()
        timeout = min(engine.timeout, self._until - now)
        try:
            if timeout <= 0:
                raise TimeoutError  # noqa: TRY301 - as if the call had ended at once
            question.limit = now + timeout
            self._wake_at(question.limit)
            return await engine.ask(raw, question.envelope, question.classifier)
        except asyncio.CancelledError:
            if not question.late or question.task is None or question.task.uncancel():
                raise  # the caller gave up
        except TimeoutError:
            pass
        finally:
            question.limit = math.inf
        sentence = f"{engine.name} did not answer within {max(timeout, 0):.0f} s."
        raise EngineFailed(FailureKind.TIMEOUT, sentence)


def _milliseconds(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
