"""Runs the analyzers over one message under their deadlines; returns their findings and their failures."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.analysis.analyzer import ConcludingAnalyzer, Known
from mailwarden.engines.engine import AnyEngine, ConfirmingEngine, ScanEngine
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence, FailureKind, Report
from mailwarden.model.observables import Observable, Observables
from mailwarden.model.record import MessageSummary
from mailwarden.model.scan import Scan
from mailwarden.pipeline.engine_questions import EngineTurns, Question, Questions, Scanning
from mailwarden.pipeline.examination import Examination, Observer, ignore, skipped
from mailwarden.pipeline.registry import CONCLUDING
from mailwarden.pipeline.worker_pool import WorkerFailed, WorkerPool
from mailwarden.pipeline.worker_steps import Frame, report_of
from mailwarden.telemetry.tracing import NO_TRACING, WORKER, Span, Tracing

_CRASHES_ALLOWED = 1


class Audience(Struct, frozen=True):
    """The recipients of one tenant, and the classifier whose statistics apply to them."""

    recipients: tuple[str, ...]
    classifier: str


class Collected(Struct, frozen=True):
    evidence: Evidence
    summary: MessageSummary
    observables: Observables = Observables()


class Collector:
    """Asks every analyzer about a message: the worker and the engines side by side, the concluding ones at the end."""

    concluding: ClassVar[tuple[ConcludingAnalyzer, ...]] = CONCLUDING

    def __init__(self, workers: WorkerPool, engines: Sequence[AnyEngine], tracing: Tracing = NO_TRACING) -> None:
        self._workers = workers
        self._tracing = tracing
        self._engines = tuple(engine for engine in engines if isinstance(engine, ScanEngine))
        self._confirming = tuple(engine for engine in engines if isinstance(engine, ConfirmingEngine))
        self.engine_names = frozenset(engine.name for engine in engines)
        self._turns = {engine.name: EngineTurns(engine, workers.heavy_count) for engine in self._engines}

    async def collect(
        self,
        scan: Scan,
        until: float,
        classifiers: Sequence[str] = ("",),
        wanted: tuple[Observable, ...] = (),
        observe: Observer = ignore,
    ) -> list[Collected]:
        """Return the evidence for each group of recipients, from one examination of the message.

        The evidence is complete at `until` by the monotonic clock, with a failure for each step that was not done.
        `classifiers` has that of each group, or "" with too few reports: an engine that learns is asked once for every
        classifier, because the statistics of one tenant are no evidence for another. `observe` gets each report for the
        first group at once; a message that crashed a worker repeats its first reports. Raise Overloaded if the message
        is heavy and too many heavy ones are in processing.
        """
        self._workers.require_room(scan.message)
        audiences = [Audience(group.recipients, name) for group, name in zip(scan.groups, classifiers, strict=True)]
        first, *rest = audiences
        examination = Examination(wanted, observe, tuple(audience.recipients for audience in rest))
        wants = dict.fromkeys((engine, _classifier(engine, each)) for each in audiences for engine in self._engines)
        questions = {
            (engine, classifier): Question(
                engine,
                scan,
                self._turns[engine.name],
                observe if classifier == _classifier(engine, first) else ignore,
                envelope=_envelope_for(engine, classifier, audiences, scan.envelope),
                classifier=classifier,
            )
            for engine, classifier in wants
        }
        async with Questions(tuple(questions.values()), examination, until, self._tracing) as asked:
            await self._run_worker(scan, first, examination, until, asked)
            await asked.wait()
        summary = examination.summary or MessageSummary(size=scan.message.size, sha256="")
        ambiguous = Evidence(tuple(examination.reports.values())).has(AMBIGUOUS_SENDER)
        collected = []
        for number, audience in enumerate(audiences):
            results = [questions[engine, _classifier(engine, audience)].result for engine in self._engines]
            answers = {report.analyzer: answer for report, answer in results if answer}
            known = Known(replace(scan.envelope, recipients=audience.recipients), summary, answers, ambiguous)
            concluded = _conclude(known, self.concluding, sound=examination.sound)
            concluded += [await engine.confirm(known, until) for engine in self._confirming]
            for report in () if number else concluded:
                observe(report)
            reports = (*examination.reports_for(number), *(report for report, _ in results), *concluded)
            collected.append(Collected(Evidence(reports), summary, examination.observables))
        return collected

    async def _run_worker(
        self, scan: Scan, first: Audience, examination: Examination, until: float, questions: Questions
    ) -> None:
        """Have a worker examine the message; a second crash of the same message ends it as failed."""
        failure: WorkerFailed | None = None
        envelope = replace(scan.envelope, recipients=first.recipients)
        for _ in range(1 + _CRASHES_ALLOWED):
            try:
                with self._tracing.span("examine", process=WORKER) as span:
                    async with asyncio.timeout(until - time.monotonic()):
                        await self._workers.run(
                            scan.message,
                            partial(_take, examination, questions, span),
                            examination.wanted,
                            envelope,
                            flow=scan.flow,
                            others=examination.others,
                        )
            except WorkerFailed as error:
                failure = error
                if error.kind is FailureKind.CRASHED:
                    continue
            except TimeoutError:
                failure = WorkerFailed(FailureKind.TIMEOUT, "No worker finished with the message in time.")
            else:
                failure = None
            break
        examination.finish(failure)
        questions.begin_ready()


def _take(examination: Examination, questions: Questions, span: Span, frame: Frame) -> None:
    examination.take(frame)
    questions.begin_ready()
    span.add_step(frame.report.analyzer, frame.report.milliseconds / 1000)


def _classifier(engine: Scanning, audience: Audience) -> str:
    """Return the classifier whose statistics the engine uses for an audience."""
    return audience.classifier if engine.learns else ""


def _envelope_for(engine: Scanning, classifier: str, audiences: Sequence[Audience], envelope: Envelope) -> Envelope:
    """Return the envelope for an engine; one that learns gets the recipients of its classifier only."""
    if len(audiences) == 1 or not engine.learns:
        return envelope
    recipients = (address for each in audiences if each.classifier == classifier for address in each.recipients)
    return replace(envelope, recipients=tuple(recipients))


def _conclude(known: Known, analyzers: Sequence[ConcludingAnalyzer], *, sound: bool) -> list[Report]:
    """Run the concluding analyzers; on a message whose structure tripped there is nothing for them to know."""
    return [
        report_of(analyzer.name, partial(analyzer.conclude, known)) if sound else skipped(analyzer.name)
        for analyzer in analyzers
    ]
