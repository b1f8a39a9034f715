"""Runs the analyzers over one message under their deadlines; returns what they noticed and what they could not do."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from mailwarden.analysis.analyzer import (
    EngineAnalyzer,
    EngineAnswer,
    EngineFailed,
    Known,
    RawMessage,
)
from mailwarden.analysis.examination import Frame, report_of
from mailwarden.analysis.fair_queue import NO_FLOW, Flow
from mailwarden.analysis.heaviness import HEAVY_BYTES
from mailwarden.analysis.registry import CONCLUDING, COVERAGE, LOCAL, MESSAGE, SIGHTINGS, STRUCTURE, is_required
from mailwarden.analysis.workers import WorkerFailed, WorkerPool
from mailwarden.errors import Overloaded
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence, Failure, FailureKind, Report, Status
from mailwarden.model.sightings import Sight, Sightings
from mailwarden.model.summary import MessageSummary

_WORKER_STEPS = (STRUCTURE, MESSAGE, *(analyzer.name for analyzer in LOCAL), COVERAGE)
_CRASHES_ALLOWED = 1
# A message that is heavy by its size waits for a worker first: engines are asked about as few at once as workers are.
_LARGE = HEAVY_BYTES

Observer = Callable[[Report], None]


def ignore(_: Report) -> None:
    """Observe nothing: nobody watches."""


class Content(Struct, frozen=True):
    """One decoded part, as something that an engine can be asked about."""

    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def open_to_read(self) -> None:
        """Return None: it is in memory."""

    def chunks(self, size: int = 262_144) -> Iterator[bytes]:
        for start in range(0, len(self.content), size):
            yield self.content[start : start + size]


class Question(Struct, frozen=True):
    """What every engine is asked."""

    raw: RawMessage
    envelope: Envelope
    learner: str


class Collected(Struct, frozen=True):
    evidence: Evidence
    summary: MessageSummary
    sightings: Sightings = Sightings()


class Examination:
    """What the worker has brought back so far; the engines wait for its word on the structure."""

    def __init__(self, wanted: tuple[Sight, ...] = (), observe: Observer = ignore) -> None:
        self.wanted = wanted
        self._observe = observe
        self.sightings = Sightings()
        self.reports: dict[str, Report] = {}
        self.summary: MessageSummary | None = None
        self.contents: tuple[bytes, ...] = ()
        self.sound = False
        self.bearable = True
        self.structure_known = asyncio.Event()
        self.done = asyncio.Event()

    def take(self, frame: Frame) -> None:
        self._note(frame.report)
        self.summary = frame.summary or self.summary
        self.contents = frame.contents or self.contents
        self.sightings = frame.sightings or self.sightings
        if frame.report.analyzer == STRUCTURE:
            self.sound, self.bearable = frame.sound, frame.bearable
            self.structure_known.set()

    def finish(self, failure: WorkerFailed | None) -> None:
        """Account for every step: what did not come is a failure, unless a tripped limit made it needless."""
        self.structure_known.set()
        self.done.set()
        tripped = STRUCTURE in self.reports and not self.sound
        for step in (*_WORKER_STEPS, SIGHTINGS) if self.wanted else _WORKER_STEPS:
            if step not in self.reports:
                self._note(_skipped(step) if tripped else _missing(step, failure))

    def _note(self, report: Report) -> None:
        self.reports[report.analyzer] = report
        self._observe(report)


class Collector:
    """Asks every analyzer about a message: the worker and the engines side by side, the concluding ones at the end."""

    def __init__(self, workers: WorkerPool, engines: Sequence[EngineAnalyzer]) -> None:
        self._workers = workers
        self._engines = tuple(engines)

    async def collect(
        self,
        raw: RawMessage,
        envelope: Envelope,
        deadline: float,
        wanted: tuple[Sight, ...] = (),
        observe: Observer = ignore,
        *,
        learner: str = "",
        flow: Flow = NO_FLOW,
    ) -> Collected:
        """Return the evidence; it is whole within `deadline` seconds, with a failure for whatever was not done.

        `observe` is told each report when it comes; a message that crashed a worker has its first ones told twice.
        `learner` is whose statistics an engine that learns goes by, `flow` whose turn it is when workers are scarce.
        Overloaded is raised where the message is heavy and too many heavy ones are in processing.
        """
        self._workers.require_room(raw)
        until = time.monotonic() + deadline
        examination = Examination(wanted, observe)
        question = Question(raw, envelope, learner)

        async def ask(engine: EngineAnalyzer) -> tuple[Report, EngineAnswer | None]:
            report, answer = await _ask(engine, question, examination, until)
            observe(report)
            return report, answer

        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask(engine)) for engine in self._engines]
            refusal = await self._examine(question, examination, until, flow)
        if refusal is not None:
            raise refusal
        answers = {report.analyzer: answer for report, answer in (task.result() for task in asked) if answer}
        summary = examination.summary or MessageSummary(size=raw.size, sha256="")
        known = Known(envelope, summary, answers, Evidence(tuple(examination.reports.values())).has(AMBIGUOUS_SENDER))
        concluded = _conclude(known, sound=examination.sound)
        for report in concluded:
            observe(report)
        reports = (*examination.reports.values(), *(task.result()[0] for task in asked), *concluded)
        return Collected(Evidence(reports), summary, examination.sightings)

    async def _examine(
        self, question: Question, examination: Examination, until: float, flow: Flow
    ) -> Overloaded | None:
        """Have a worker look at the message; a second crash of the same message ends it as failed."""
        failure: WorkerFailed | None = None
        refusal: Overloaded | None = None
        raw, envelope = question.raw, question.envelope
        for _ in range(1 + _CRASHES_ALLOWED):
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await self._workers.examine(raw, examination.take, examination.wanted, envelope, flow=flow)
            except WorkerFailed as error:
                failure = error
                if error.kind is FailureKind.CRASHED:
                    continue
            except TimeoutError:
                failure = WorkerFailed(FailureKind.TIMEOUT, "No worker finished with the message in time.")
            except Overloaded as error:
                refusal = error
            else:
                failure = None
            break
        examination.finish(failure)
        return refusal


async def _ask(
    engine: EngineAnalyzer, question: Question, examination: Examination, until: float
) -> tuple[Report, EngineAnswer | None]:
    """Ask one engine; one that cannot bear any structure waits for the check and is not asked where it trips."""
    if not engine.bears_any_structure or question.raw.size > _LARGE:
        await examination.structure_known.wait()
        if not (examination.sound or (engine.bears_any_structure and examination.bearable)):
            return _skipped(engine.name), None
    started = time.perf_counter()
    patience = min(engine.timeout, until - time.monotonic())
    try:
        async with asyncio.timeout(patience):
            answer = await engine.examine(question.raw, question.envelope, question.learner)
            took = _milliseconds(started)
            if engine.reads_contents and not answer.findings:
                await examination.done.wait()
                if examination.contents:
                    answer = await _ask_about_contents(engine, answer, question.envelope, examination.contents)
                    took = _milliseconds(started)
    except EngineFailed as error:
        failure = Failure(engine.name, error.kind, error.sentence)
    except TimeoutError:
        sentence = f"{engine.name} did not answer within {max(patience, 0):.0f} s."
        failure = Failure(engine.name, FailureKind.TIMEOUT, sentence)
    else:
        required = is_required(engine.name)
        rest = Failure(engine.name, FailureKind.UNFINISHED, answer.unfinished) if answer.unfinished else None
        report = Report(engine.name, required, Status.FINISHED, took, answer.findings, rest, answer.engine)
        return report, answer
    return Report(engine.name, is_required(engine.name), Status.FAILED, _milliseconds(started), (), failure), None


async def _ask_about_contents(
    engine: EngineAnalyzer, answer: EngineAnswer, envelope: Envelope, contents: Sequence[bytes]
) -> EngineAnswer:
    """Ask about the decoded parts of an ambiguous message: the engine's own reader may have missed them."""
    for content in contents:
        about_part = await engine.examine(Content(content), envelope)
        if about_part.findings:
            return about_part
    return answer


def _conclude(known: Known, *, sound: bool) -> list[Report]:
    """Run the concluding analyzers; on a message whose structure tripped there is nothing for them to know."""
    return [
        report_of(analyzer.name, partial(analyzer.conclude, known)) if sound else _skipped(analyzer.name)
        for analyzer in CONCLUDING
    ]


def _missing(step: str, failure: WorkerFailed | None) -> Report:
    kind = failure.kind if failure else FailureKind.UNFINISHED
    sentence = failure.sentence if failure else "The worker ended without a report."
    return Report(step, is_required(step), Status.FAILED, 0.0, failure=Failure(step, kind, sentence))


def _skipped(analyzer: str) -> Report:
    return Report(analyzer, is_required(analyzer), Status.SKIPPED, 0.0)


def _milliseconds(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
