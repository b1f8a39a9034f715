"""Looks at scanned messages once more with the local analyzers of now, and leaves the engines' word as it was.

Between two changes of an analyzer this takes seconds where a scan takes minutes. It is for building: the analyzers run
in plain processes without deadlines, and what concludes from the engines is not asked again.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence

from evaluate.corpus import Corpus
from evaluate.records import Scanned
from mailwarden.analysis.pipeline.registry import LOCAL, MESSAGE, STRUCTURE
from mailwarden.analysis.pipeline.worker_steps import Job, examine
from mailwarden.model.evidence import Evidence, Report

_CHUNK = 20
_corpus: list[Corpus] = []  # in each process: the corpus that it reads from


def refresh(corpus: Corpus, records: Sequence[Scanned]) -> Iterator[Scanned]:
    """Yield the records in their order, with the reports of the local analyzers made anew."""
    now = time.time()
    work = ((record, now) for record in records)
    context = multiprocessing.get_context("fork")  # the corpus's normaliser is a file, not a module to import
    with context.Pool(os.cpu_count(), _corpus.append, (corpus,)) as pool:
        yield from pool.imap(_refresh_one, work, _CHUNK)


def _refresh_one(work: tuple[Scanned, float]) -> Scanned:
    record, now = work
    posted = _corpus[0].post(record.sample, now)
    reports = [frame.report for frame in examine(Job(posted.raw, envelope=posted.envelope))]
    return with_reports(record, reports)


def with_reports(record: Scanned, reports: Sequence[Report]) -> Scanned:
    """Return the record with these reports in the place of what the worker said before."""
    local = {STRUCTURE, MESSAGE, *(analyzer.name for analyzer in LOCAL), *(report.analyzer for report in reports)}
    kept = tuple(report for report in record.evidence.reports if report.analyzer not in local)
    return Scanned(
        record.sample,
        Evidence((*reports, *kept)),
        record.subject,
        record.problem,
        record.rspamd,
        record.spamassassin,
    )
