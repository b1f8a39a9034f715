"""Runs the current local and concluding analyzers on scanned messages again, with the engines' stored answers.

After a change of an analyzer this takes seconds where a scan takes minutes. It is for development: the analyzers run in
plain processes without deadlines, and the engines are not asked again.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from mailwarden.analysis.analyzer import Known
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence, Report
from mailwarden.model.record import MessageSummary
from mailwarden.pipeline.registry import CONCLUDING, LOCAL, MESSAGE, STRUCTURE
from mailwarden.pipeline.worker_steps import Job, report_of, run_steps
from workshop.evaluate.corpus import Corpus
from workshop.evaluate.progress import Meter
from workshop.evaluate.records import Scanned

_CHUNK = 20
_corpora: dict[str, Corpus] = {}  # by name, in each process


def refresh(corpora: Mapping[str, Corpus], records: Sequence[Scanned]) -> Iterator[Scanned]:
    """Yield the records in their order, with new reports of the local and concluding analyzers."""
    now = time.time()
    work = ((record, now) for record in records)
    meter = Meter(len(records))
    context = multiprocessing.get_context("fork")  # the corpus's normaliser is a file, not an importable module
    with context.Pool(os.cpu_count(), _corpora.update, (corpora,)) as pool:
        for record in pool.imap(_refresh_one, work, _CHUNK):
            meter.step()
            yield record


def _refresh_one(work: tuple[Scanned, float]) -> Scanned:
    record, now = work
    posted = _corpora[record.sample.corpus].post(record.sample, now)
    frames = list(run_steps(Job(posted.raw, envelope=posted.envelope)))
    reports = [frame.report for frame in frames]
    summary = next((frame.summary for frame in reversed(frames) if frame.summary), None)
    if record.answers and all(frame.sound for frame in frames):
        ambiguous = Evidence(tuple(reports)).has(AMBIGUOUS_SENDER)
        known = Known(posted.envelope, summary or MessageSummary(len(posted.raw), ""), record.answers, ambiguous)
        reports += [report_of(analyzer.name, partial(analyzer.conclude, known)) for analyzer in CONCLUDING]
    return replace(with_reports(record, reports), summary=summary or record.summary)


def with_reports(record: Scanned, reports: Sequence[Report]) -> Scanned:
    """Return the record with these reports in place of the earlier ones of the same analyzers."""
    local = {STRUCTURE, MESSAGE, *(analyzer.name for analyzer in LOCAL), *(report.analyzer for report in reports)}
    kept = tuple(report for report in record.evidence.reports if report.analyzer not in local)
    return replace(record, evidence=Evidence((*reports, *kept)))
