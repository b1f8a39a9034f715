"""Runs the current local analyzers on scanned messages again, and keeps the engines' reports.

After a change of an analyzer this takes seconds where a scan takes minutes. It is for development: the analyzers run in
plain processes without deadlines, and analyzers that need the engines are not run again.
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
_corpus: list[Corpus] = []  # the corpus, in each process


def refresh(corpus: Corpus, records: Sequence[Scanned]) -> Iterator[Scanned]:
    """Yield the records in their order, with new reports of the local analyzers."""
    now = time.time()
    work = ((record, now) for record in records)
    context = multiprocessing.get_context("fork")  # the corpus's normaliser is a file, not an importable module
    with context.Pool(os.cpu_count(), _corpus.append, (corpus,)) as pool:
        yield from pool.imap(_refresh_one, work, _CHUNK)


def _refresh_one(work: tuple[Scanned, float]) -> Scanned:
    record, now = work
    posted = _corpus[0].post(record.sample, now)
    reports = [frame.report for frame in examine(Job(posted.raw, envelope=posted.envelope))]
    return with_reports(record, reports)


def with_reports(record: Scanned, reports: Sequence[Report]) -> Scanned:
    """Return the record with these reports in place of the worker's earlier ones."""
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
