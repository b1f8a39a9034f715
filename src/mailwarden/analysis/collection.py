"""Runs the analyzers over one message under their deadlines; brings back what they noticed and what they could not do."""

import asyncio
import time
from collections.abc import Sequence

from msgspec import Struct

from mailwarden.analysis.analyzer import EngineAnalyzer, EngineAnswer, EngineFailed, Known, RawMessage
from mailwarden.analysis.registry import CONCLUDING, LOCAL, MESSAGE, STRUCTURE, is_required
from mailwarden.analysis.workers import WorkerFailed, WorkerPool
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Failure, FailureKind, Report, Status
from mailwarden.model.summary import MessageSummary

_WORKER_STEPS = (STRUCTURE, MESSAGE, *(analyzer.name for analyzer in LOCAL))
_CRASHES_ALLOWED = 1


class Collected(Struct, frozen=True):
    evidence: Evidence
    summary: MessageSummary


class _Examined(Struct):
    """What the worker has brought back so far."""

    reports: dict[str, Report] = {}
    summary: MessageSummary | None = None
    sound: bool = False


class Collector:
    """Asks every analyzer about a message: the worker and the engines side by side, the concluding ones at the end."""

    def __init__(self, workers: WorkerPool, engines: Sequence[EngineAnalyzer]) -> None:
        self._workers = workers
        self._engines = tuple(engines)

    async def collect(self, raw: RawMessage, envelope: Envelope, deadline: float) -> Collected:
        """Return the evidence; it is whole within `deadline` seconds, with a failure for whatever was not done."""
        until = time.monotonic() + deadline
        structure: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as tasks:
            examination = tasks.create_task(self._examine(raw, structure, until))
            asked = [tasks.create_task(_ask(engine, raw, envelope, structure, until)) for engine in self._engines]
        examined = examination.result()
        answers = {report.analyzer: answer for report, answer in (task.result() for task in asked) if answer}
        summary = examined.summary or MessageSummary(size=raw.size, sha256="")
        known = Known(envelope, summary, answers)
        reports = [
            *examined.reports.values(),
            *(task.result()[0] for task in asked),
            *_conclude(known, sound=examined.sound),
        ]
        return Collected(Evidence(tuple(reports)), summary)

    async def _examine(self, raw: RawMessage, structure: asyncio.Future[bool], until: float) -> _Examined:
        """Have a worker look at the message; a second crash of the same message ends it as failed."""
        examined = _Examined()
        failure: WorkerFailed | None = None
        for _ in range(1 + _CRASHES_ALLOWED):
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await self._read_frames(raw, structure, examined)
            except WorkerFailed as error:
                failure = error
                if error.kind is FailureKind.CRASHED:
                    continue
            except TimeoutError:
                failure = WorkerFailed(FailureKind.TIMEOUT, "No worker finished with the message in time.")
            else:
                failure = None
            break
        if not structure.done():
            structure.set_result(False)
        steps = _WORKER_STEPS if examined.sound or not examined.reports else (STRUCTURE,)
        for step in _WORKER_STEPS:
            if step not in examined.reports:
                examined.reports[step] = _missing(step, failure) if step in steps else _skipped(step)
        return examined

    async def _read_frames(self, raw: RawMessage, structure: asyncio.Future[bool], examined: _Examined) -> None:
        async for frame in self._workers.examine(raw):
            examined.reports[frame.report.analyzer] = frame.report
            examined.summary = frame.summary or examined.summary
            if frame.report.analyzer == STRUCTURE:
                examined.sound = frame.sound
                if not structure.done():
                    structure.set_result(frame.sound)


async def _ask(
    engine: EngineAnalyzer, raw: RawMessage, envelope: Envelope, structure: asyncio.Future[bool], until: float
) -> tuple[Report, EngineAnswer | None]:
    """Ask one engine; one that cannot bear any structure waits for the check and is not asked where it trips."""
    if not engine.bears_any_structure and not await asyncio.shield(structure):
        return _skipped(engine.name), None
    started = time.perf_counter()
    patience = min(engine.timeout, until - time.monotonic())
    try:
        async with asyncio.timeout(patience):
            answer = await engine.examine(raw, envelope)
    except EngineFailed as error:
        failure = Failure(engine.name, error.kind, error.sentence)
    except TimeoutError:
        sentence = f"{engine.name} did not answer within {max(patience, 0):.0f} s."
        failure = Failure(engine.name, FailureKind.TIMEOUT, sentence)
    else:
        took = _milliseconds(started)
        report = Report(
            engine.name, is_required(engine.name), Status.FINISHED, took, answer.findings, None, answer.engine
        )
        return report, answer
    return Report(engine.name, is_required(engine.name), Status.FAILED, _milliseconds(started), (), failure), None


def _conclude(known: Known, *, sound: bool) -> list[Report]:
    """Run the concluding analyzers; on a message whose structure tripped there is nothing for them to know."""
    reports = []
    for analyzer in CONCLUDING:
        if not sound:
            reports.append(_skipped(analyzer.name))
            continue
        started = time.perf_counter()
        findings = tuple(analyzer.conclude(known))
        took = _milliseconds(started)
        reports.append(Report(analyzer.name, is_required(analyzer.name), Status.FINISHED, took, findings))
    return reports


def _missing(step: str, failure: WorkerFailed | None) -> Report:
    kind = failure.kind if failure else FailureKind.UNFINISHED
    sentence = failure.sentence if failure else "The worker ended without a report."
    return Report(step, is_required(step), Status.FAILED, 0.0, failure=Failure(step, kind, sentence))


def _skipped(analyzer: str) -> Report:
    return Report(analyzer, is_required(analyzer), Status.SKIPPED, 0.0)


def _milliseconds(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
