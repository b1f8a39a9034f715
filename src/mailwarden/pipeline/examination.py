"""The results of the worker for one message, as they arrive, and the reports of the steps that are missing."""

import asyncio
from collections.abc import Callable

from mailwarden.model.evidence import Failure, FailureKind, Report, Status
from mailwarden.model.observables import Observable, Observables
from mailwarden.model.record import MessageSummary
from mailwarden.pipeline.message_weight import Weight
from mailwarden.pipeline.registry import COVERAGE, LOCAL, MESSAGE, OBSERVABLES, SIMILARITY, STRUCTURE
from mailwarden.pipeline.worker_pool import WorkerFailed
from mailwarden.pipeline.worker_steps import Frame

_WORKER_STEPS = (STRUCTURE, MESSAGE, *(analyzer.name for analyzer in LOCAL), COVERAGE)

Observer = Callable[[Report], None]


def ignore(_: Report) -> None:
    """Ignore a report."""


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
        self.structure_known = False
        self.parsed = False
        self.weighed = False  # also by the files inside its files
        self.done = asyncio.Event()

    def take(self, frame: Frame) -> None:
        if frame.weight is not None:
            self._weigh(frame.weight)
        if frame.handed_over:
            return
        if frame.group:
            self._again[frame.group - 1][frame.report.analyzer] = frame.report
            return
        if frame.report.analyzer != SIMILARITY or frame.report.failure:
            self._note(frame.report)
        self.summary = frame.summary or self.summary
        if frame.contents:
            self.contents = tuple(dict.fromkeys((*self.contents, *frame.contents)))
        self.observables = frame.observables or self.observables
        if frame.report.analyzer == STRUCTURE:
            self.sound, self.scannable = frame.sound, frame.scannable
            self.structure_known = True

    def finish(self, failure: WorkerFailed | None) -> None:
        """Complete the reports: a missing step is a failure, or is skipped if the message is beyond a limit."""
        self.structure_known = self.parsed = self.weighed = True
        self.done.set()
        tripped = STRUCTURE in self.reports and not self.sound
        for step in (*_WORKER_STEPS, OBSERVABLES) if self.wanted else _WORKER_STEPS:
            if step not in self.reports:
                self._note(skipped(step) if tripped else _missing(step, failure))
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
        self.parsed = True
        if self.heavy or not weight.has_files:
            self.weighed = True

    def _note(self, report: Report) -> None:
        self.reports[report.analyzer] = report
        self._observe(report)


def _missing(step: str, failure: WorkerFailed | None) -> Report:
    kind = failure.kind if failure else FailureKind.UNFINISHED
    sentence = failure.sentence if failure else "The worker ended without a report."
    return Report(step, True, Status.FAILED, 0.0, failure=Failure(step, kind, sentence))


def skipped(analyzer: str, *, required: bool = True) -> Report:
    """Return the report of an analyzer that was not asked."""
    return Report(analyzer, required, Status.SKIPPED, 0.0)
