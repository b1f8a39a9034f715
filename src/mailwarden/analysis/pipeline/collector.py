"""Runs the analyzers over one message under their deadlines; returns their findings and their failures."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.analysis.analyzer import Content, EngineAnswer, EngineFailed, Known, RawMessage
from mailwarden.analysis.engines.engine import AnyEngine, ConfirmingEngine, EngineSettings, ScanEngine
from mailwarden.analysis.pipeline.fair_queue import HEAVY_BYTES, NO_FLOW, FairQueue, Flow, Turn, Weight
from mailwarden.analysis.pipeline.registry import CONCLUDING, COVERAGE, LOCAL, MESSAGE, OBSERVABLES, STRUCTURE
from mailwarden.analysis.pipeline.worker_pool import WorkerFailed, WorkerPool
from mailwarden.analysis.pipeline.worker_steps import Frame, report_of
from mailwarden.errors import Overloaded
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence, Failure, FailureKind, Report, Status
from mailwarden.model.observables import Observable, Observables
from mailwarden.model.record import MessageSummary
from mailwarden.telemetry.tracing import NO_TRACING, WORKER, Span, Tracing

_WORKER_STEPS = (STRUCTURE, MESSAGE, *(analyzer.name for analyzer in LOCAL), COVERAGE)
_CRASHES_ALLOWED = 1
# Seconds from the structure check on; a message that is not weighed by then is treated as heavy.
_WEIGHING_TIMEOUT = 2.0

Observer = Callable[[Report], None]
Scanning = ScanEngine[EngineSettings]


def ignore(_: Report) -> None:
    """Ignore a report."""


class Audience(Struct, frozen=True):
    """The recipients of one tenant, and the learner whose statistics apply to them, or "" with too few reports."""

    recipients: tuple[str, ...] = ()
    learner: str = ""


class ScanInput(Struct, frozen=True):
    """A message to scan, with the learner whose statistics apply and the flow for its turn in the queue."""

    raw: RawMessage
    envelope: Envelope
    learner: str = ""
    flow: Flow = NO_FLOW


class Collected(Struct, frozen=True):
    evidence: Evidence
    summary: MessageSummary
    observables: Observables = Observables()


class Examination:
    """The results of the worker so far; the engines wait for its structure check."""

    def __init__(
        self,
        wanted: tuple[Observable, ...] = (),
        observe: Observer = ignore,
        others: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        self.wanted = wanted
        self.others = others
        self._observe = observe
        self.observables = Observables()
        self.reports: dict[str, Report] = {}
        self._again: tuple[dict[str, Report], ...] = tuple({} for _ in others)
        self.summary: MessageSummary | None = None
        self.contents: tuple[bytes, ...] = ()
        self.sound = False
        self.scannable = True
        self.heavy = False
        self.structure_known = asyncio.Event()
        self.parsed = asyncio.Event()
        self.weighed = asyncio.Event()  # also by the files inside its files
        self.done = asyncio.Event()

    def take(self, frame: Frame) -> None:
        if frame.weight is not None:
            self._weigh(frame.weight)
        if frame.handed_over:
            return
        if frame.group:
            self._again[frame.group - 1][frame.report.analyzer] = frame.report
            return
        self._note(frame.report)
        self.summary = frame.summary or self.summary
        self.contents = tuple(dict.fromkeys((*self.contents, *frame.contents)))
        self.observables = frame.observables or self.observables
        if frame.report.analyzer == STRUCTURE:
            self.sound, self.scannable = frame.sound, frame.scannable
            self.structure_known.set()

    def finish(self, failure: WorkerFailed | None) -> None:
        """Complete the reports: a missing step is a failure, or is skipped if the message is beyond a limit."""
        for event in (self.structure_known, self.parsed, self.weighed, self.done):
            event.set()
        tripped = STRUCTURE in self.reports and not self.sound
        for step in (*_WORKER_STEPS, OBSERVABLES) if self.wanted else _WORKER_STEPS:
            if step not in self.reports:
                self._note(_skipped(step) if tripped else _missing(step, failure))
        for again in () if tripped else self._again:
            if COVERAGE not in again:
                # Which analyzers had to run again is unknown: each one without a report counts as failed.
                steps = (*(analyzer.name for analyzer in LOCAL), COVERAGE)
                again.update({step: _missing(step, failure) for step in steps if step not in again})

    def reports_for(self, group: int) -> tuple[Report, ...]:
        """Return the reports for one group of recipients: a second look replaces the first."""
        again = self._again[group - 1] if group else {}
        return tuple(again.get(name, report) for name, report in self.reports.items())

    def _weigh(self, weight: Weight) -> None:
        self.heavy = self.heavy or weight.heavy
        self.parsed.set()
        if self.heavy or not weight.has_files:
            self.weighed.set()

    def _note(self, report: Report) -> None:
        self.reports[report.analyzer] = report
        self._observe(report)


class Collector:
    """Asks every analyzer about a message: the worker and the engines side by side, the concluding ones at the end."""

    def __init__(self, workers: WorkerPool, engines: Sequence[AnyEngine], tracing: Tracing = NO_TRACING) -> None:
        self._workers = workers
        self._tracing = tracing
        self._engines = tuple(engine for engine in engines if isinstance(engine, ScanEngine))
        self._confirming = tuple(engine for engine in engines if isinstance(engine, ConfirmingEngine))
        self.engine_names = frozenset(engine.name for engine in engines)
        self._turns = {engine.name: EngineTurns(engine, workers.heavy_count) for engine in self._engines}

    async def collect(
        self,
        raw: RawMessage,
        envelope: Envelope,
        deadline: float,
        wanted: tuple[Observable, ...] = (),
        observe: Observer = ignore,
    ) -> Collected:
        """Return the evidence for all recipients as one audience without a learner."""
        audiences = (Audience(envelope.recipients),)
        return (await self.collect_for(audiences, ScanInput(raw, envelope), deadline, wanted, observe))[0]

    async def collect_for(
        self,
        audiences: Sequence[Audience],
        message: ScanInput,
        deadline: float,
        wanted: tuple[Observable, ...] = (),
        observe: Observer = ignore,
    ) -> list[Collected]:
        """Return the evidence for each audience of one message, from one examination.

        The evidence is complete within `deadline` seconds, with a failure for each step that was not done. `observe`
        gets each report for the first audience at once; a message that crashed a worker repeats its first reports. An
        engine that learns is asked once for every learner: the statistics of one tenant are no evidence for another.
        Raise Overloaded if the message is heavy and too many heavy ones are in processing.
        """
        raw, envelope = message.raw, message.envelope
        self._workers.require_room(raw)
        until = time.monotonic() + deadline
        first, *rest = audiences
        examination = Examination(wanted, observe, tuple(audience.recipients for audience in rest))

        async def ask(engine: Scanning, learner: str) -> tuple[Report, EngineAnswer | None]:
            scan_input = _input_for(engine, learner, audiences, message)
            with self._tracing.span(engine.name) as span:
                report, answer = await _ask(engine, scan_input, examination, until, self._turns[engine.name])
                span.set(status=report.status, seconds=report.milliseconds / 1000)
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
            results = [asked[engine, _learner(engine, audience)].result() for engine in self._engines]
            answers = {report.analyzer: answer for report, answer in results if answer}
            known = Known(replace(envelope, recipients=audience.recipients), summary, answers, ambiguous)
            concluded = _conclude(known, sound=examination.sound)
            concluded += [await engine.confirm(known, until) for engine in self._confirming]
            for report in () if number else concluded:
                observe(report)
            reports = (*examination.reports_for(number), *(report for report, _ in results), *concluded)
            collected.append(Collected(Evidence(reports), summary, examination.observables))
        return collected

    async def _examine(self, scan_input: ScanInput, examination: Examination, until: float) -> Overloaded | None:
        """Have a worker examine the message; a second crash of the same message ends it as failed."""
        failure: WorkerFailed | None = None
        refusal: Overloaded | None = None
        raw, envelope = scan_input.raw, scan_input.envelope
        for _ in range(1 + _CRASHES_ALLOWED):
            try:
                with self._tracing.span("examine", process=WORKER) as span:
                    async with asyncio.timeout(until - time.monotonic()):
                        await self._workers.examine(
                            raw,
                            partial(_take, examination, span),
                            examination.wanted,
                            envelope,
                            flow=scan_input.flow,
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


def _take(examination: Examination, span: Span, frame: Frame) -> None:
    examination.take(frame)
    span.add_step(frame.report.analyzer, frame.report.milliseconds / 1000)


def _learner(engine: Scanning, audience: Audience) -> str:
    """Return the learner whose statistics the engine uses for an audience."""
    return audience.learner if engine.learns else ""


def _input_for(engine: Scanning, learner: str, audiences: Sequence[Audience], message: ScanInput) -> ScanInput:
    """Return the request to an engine; an engine that learns gets the recipients of its learner only."""
    if len(audiences) == 1 or not engine.learns:
        return replace(message, learner=learner)
    recipients = (address for each in audiences if each.learner == learner for address in each.recipients)
    return replace(message, envelope=replace(message.envelope, recipients=tuple(recipients)), learner=learner)


class EngineTurns:
    """How many heavy messages one engine is asked about at once; an engine has no priorities of its own."""

    def __init__(self, engine: Scanning, count: int) -> None:
        self._engine = engine
        self._turns = FairQueue([Turn() for _ in range(max(1, count))])

    async def ask(self, scan_input: ScanInput, raw: RawMessage, until: float, *, heavy: bool) -> EngineAnswer:
        """Ask the engine within its timeout, about a heavy message once it has a turn; raise EngineFailed otherwise."""
        if not heavy:
            return await self._ask(scan_input, raw, until)
        try:
            async with asyncio.timeout(until - time.monotonic()):
                turn = await self._turns.take(scan_input.flow)
        except TimeoutError:
            sentence = f"{self._engine.name} was not asked in time, because other heavy messages came first."
            raise EngineFailed(FailureKind.TIMEOUT, sentence) from None
        try:
            return await self._ask(scan_input, raw, until)
        finally:
            self._turns.give(turn)

    async def _ask(self, scan_input: ScanInput, raw: RawMessage, until: float) -> EngineAnswer:
        timeout = min(self._engine.timeout, until - time.monotonic())
        try:
            async with asyncio.timeout(timeout):
                return await self._engine.examine(raw, scan_input.envelope, scan_input.learner)
        except TimeoutError:
            sentence = f"{self._engine.name} did not answer within {max(timeout, 0):.0f} s."
            raise EngineFailed(FailureKind.TIMEOUT, sentence) from None


async def _ask(
    engine: Scanning, scan_input: ScanInput, examination: Examination, until: float, turns: EngineTurns
) -> tuple[Report, EngineAnswer | None]:
    """Ask one engine once the worker has weighed the message; one that trips a limit only where it accepts such."""
    await examination.structure_known.wait()
    if not (examination.sound or (engine.accepts_malformed and examination.scannable)):
        return _skipped(engine.name, required=engine.required), None
    heavy = await _is_heavy(engine, scan_input.raw, examination)
    started = time.perf_counter()
    required = engine.required
    try:
        answer = await turns.ask(scan_input, scan_input.raw, until, heavy=heavy)
        took = _milliseconds(started)
        if engine.reads_contents and not answer.findings:
            await examination.done.wait()
            # The engine's own reader may have missed the decoded parts of an ambiguous message.
            for content in examination.contents:
                answer = await turns.ask(scan_input, Content(content), until, heavy=examination.heavy)
                took = _milliseconds(started)
                if answer.findings:
                    break
    except EngineFailed as error:
        failure = Failure(engine.name, error.kind, error.sentence)
        return Report(engine.name, required, Status.FAILED, _milliseconds(started), (), failure), None
    rest = Failure(engine.name, FailureKind.UNFINISHED, answer.unfinished) if answer.unfinished else None
    findings, convicts = answer.findings, engine.convicts_files
    return Report(engine.name, required, Status.FINISHED, took, findings, rest, answer.engine, convicts), answer


async def _is_heavy(engine: Scanning, raw: RawMessage, examination: Examination) -> bool:
    """Wait until the worker has weighed the message, for an engine that unpacks files also what is inside them."""
    if raw.size > HEAVY_BYTES:
        return True
    event = examination.weighed if engine.unpacks else examination.parsed
    try:
        async with asyncio.timeout(_WEIGHING_TIMEOUT):
            await event.wait()
    except TimeoutError:
        return True
    return examination.heavy


def _conclude(known: Known, *, sound: bool) -> list[Report]:
    """Run the concluding analyzers; on a message whose structure tripped there is nothing for them to know."""
    return [
        report_of(analyzer.name, partial(analyzer.conclude, known)) if sound else _skipped(analyzer.name)
        for analyzer in CONCLUDING
    ]


def _missing(step: str, failure: WorkerFailed | None) -> Report:
    kind = failure.kind if failure else FailureKind.UNFINISHED
    sentence = failure.sentence if failure else "The worker ended without a report."
    return Report(step, True, Status.FAILED, 0.0, failure=Failure(step, kind, sentence))


def _skipped(analyzer: str, *, required: bool = True) -> Report:
    return Report(analyzer, required, Status.SKIPPED, 0.0)


def _milliseconds(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
