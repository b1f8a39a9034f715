"""Runs the analyzers over one message under their deadlines; returns what they noticed and what they could not do."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

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
from mailwarden.analysis.resolver import Resolver
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


class Audience(Struct, frozen=True):
    """The recipients of one tenant, and whose learned statistics count for them: "" where nobody taught enough."""

    recipients: tuple[str, ...] = ()
    learner: str = ""


class Question(Struct, frozen=True):
    """A message that is asked about: by whose learned statistics, and whose turn it is when workers are scarce."""

    raw: RawMessage
    envelope: Envelope
    learner: str = ""
    flow: Flow = NO_FLOW


class Collected(Struct, frozen=True):
    evidence: Evidence
    summary: MessageSummary
    sightings: Sightings = Sightings()


class Examination:
    """What the worker has brought back so far; the engines wait for its word on the structure."""

    def __init__(
        self,
        wanted: tuple[Sight, ...] = (),
        observe: Observer = ignore,
        others: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        self.wanted = wanted
        self.others = others
        self._observe = observe
        self.sightings = Sightings()
        self.reports: dict[str, Report] = {}
        self._again: tuple[dict[str, Report], ...] = tuple({} for _ in others)
        self.summary: MessageSummary | None = None
        self.contents: tuple[bytes, ...] = ()
        self.sound = False
        self.bearable = True
        self.structure_known = asyncio.Event()
        self.done = asyncio.Event()

    def take(self, frame: Frame) -> None:
        if frame.group:
            self._again[frame.group - 1][frame.report.analyzer] = frame.report
            return
        self._note(frame.report)
        self.summary = frame.summary or self.summary
        self.contents = tuple(dict.fromkeys((*self.contents, *frame.contents)))
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
        for again in () if tripped else self._again:
            if COVERAGE not in again:
                # Which analyzers had to look again is not known: whatever did not counts as failed.
                steps = (*(analyzer.name for analyzer in LOCAL), COVERAGE)
                again.update({step: _missing(step, failure) for step in steps if step not in again})

    def reports_for(self, group: int) -> tuple[Report, ...]:
        """Return the reports for one group of recipients: a second look replaces the first."""
        again = self._again[group - 1] if group else {}
        return tuple(again.get(name, report) for name, report in self.reports.items())

    def _note(self, report: Report) -> None:
        self.reports[report.analyzer] = report
        self._observe(report)


class Collector:
    """Asks every analyzer about a message: the worker and the engines side by side, the concluding ones at the end."""

    def __init__(
        self, workers: WorkerPool, engines: Sequence[EngineAnalyzer], resolver: Resolver | None = None
    ) -> None:
        self._workers = workers
        self._engines = tuple(engines)
        self._resolver = resolver

    async def collect(
        self,
        raw: RawMessage,
        envelope: Envelope,
        deadline: float,
        wanted: tuple[Sight, ...] = (),
        observe: Observer = ignore,
    ) -> Collected:
        """Return the evidence for all recipients as one audience that taught nothing."""
        audiences = (Audience(envelope.recipients),)
        return (await self.collect_for(audiences, Question(raw, envelope), deadline, wanted, observe))[0]

    async def collect_for(
        self,
        audiences: Sequence[Audience],
        message: Question,
        deadline: float,
        wanted: tuple[Sight, ...] = (),
        observe: Observer = ignore,
    ) -> list[Collected]:
        """Return the evidence for each audience of one message, from one examination.

        It is whole within `deadline` seconds, with a failure for whatever was not done. `observe` is told each report
        for the first audience when it comes; a message that crashed a worker has its first ones told twice. An engine
        that learns is asked once for every learner: what one tenant taught it is no evidence for another.
        Overloaded is raised where the message is heavy and too many heavy ones are in processing.
        """
        raw, envelope = message.raw, message.envelope
        self._workers.require_room(raw)
        until = time.monotonic() + deadline
        first, *rest = audiences
        examination = Examination(wanted, observe, tuple(audience.recipients for audience in rest))

        async def ask(engine: EngineAnalyzer, learner: str) -> tuple[Report, EngineAnswer | None]:
            question = _question(engine, learner, audiences, message)
            report, answer = await _ask(engine, question, examination, until)
            if learner == _learner(engine, first):
                observe(report)
            return report, answer

        wants = dict.fromkeys((engine, _learner(engine, each)) for each in audiences for engine in self._engines)
        async with asyncio.TaskGroup() as tasks:
            asked = {(engine, learner): tasks.create_task(ask(engine, learner)) for engine, learner in wants}
            own = replace(message, envelope=replace(envelope, recipients=first.recipients))
            refusal = await self._examine(own, examination, until)
        if refusal is not None:
            raise refusal
        summary = examination.summary or MessageSummary(size=raw.size, sha256="")
        ambiguous = Evidence(tuple(examination.reports.values())).has(AMBIGUOUS_SENDER)
        collected = []
        for number, audience in enumerate(audiences):
            said = [asked[engine, _learner(engine, audience)].result() for engine in self._engines]
            answers = {report.analyzer: answer for report, answer in said if answer}
            known = Known(replace(envelope, recipients=audience.recipients), summary, answers, ambiguous)
            concluded = _conclude(known, sound=examination.sound)
            if self._resolver is not None:
                concluded.append(await self._resolver.confirm(known, until))
            for report in () if number else concluded:
                observe(report)
            reports = (*examination.reports_for(number), *(report for report, _ in said), *concluded)
            collected.append(Collected(Evidence(reports), summary, examination.sightings))
        return collected

    async def _examine(self, question: Question, examination: Examination, until: float) -> Overloaded | None:
        """Have a worker look at the message; a second crash of the same message ends it as failed."""
        failure: WorkerFailed | None = None
        refusal: Overloaded | None = None
        raw, envelope = question.raw, question.envelope
        for _ in range(1 + _CRASHES_ALLOWED):
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await self._workers.examine(
                        raw,
                        examination.take,
                        examination.wanted,
                        envelope,
                        flow=question.flow,
                        others=examination.others,
                    )
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


def _learner(engine: EngineAnalyzer, audience: Audience) -> str:
    """Return whose statistics the engine goes by for an audience."""
    return audience.learner if engine.learns else ""


def _question(engine: EngineAnalyzer, learner: str, audiences: Sequence[Audience], message: Question) -> Question:
    """Return what an engine is asked; one that learns is told of the learner's own recipients alone."""
    if len(audiences) == 1 or not engine.learns:
        return replace(message, learner=learner)
    recipients = (address for each in audiences if each.learner == learner for address in each.recipients)
    return Question(message.raw, replace(message.envelope, recipients=tuple(recipients)), learner)


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
