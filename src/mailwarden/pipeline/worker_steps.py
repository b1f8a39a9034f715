"""The steps of a worker process for one message: structure check, parse, local analyzers, one frame each.

Security: this is the code that touches hostile bytes; it runs only in a process that may be killed at any moment.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.analysis.message_values import find_observables, summarize, with_links
from mailwarden.analysis.similarity import find_similarity
from mailwarden.analysis.view import NOBODY, View
from mailwarden.message.coverage import Coverage, Missed, MissedReason
from mailwarden.message.limits import LIMITS, Limits
from mailwarden.message.parser import parse_message
from mailwarden.message.sender import find_envelope_doubts, find_sender_doubts
from mailwarden.message.structure import LINES, StructureReport, check_structure
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Fact, Failure, FailureKind, Finding, Omitted, Report, Status
from mailwarden.model.observables import Observable, Observables
from mailwarden.model.place import area
from mailwarden.model.record import MessageSummary
from mailwarden.pipeline.message_weight import Weight, has_heavy_pictures, weigh
from mailwarden.pipeline.registry import COVERAGE, LOCAL, MESSAGE, OBSERVABLES, SIMILARITY, STRUCTURE

SECOND_LOOKS = 5.0  # seconds for all further tenants together, so that no message holds a worker for long

_MISSED_FINDINGS = {
    MissedReason.LIMIT: "structure.limit",
    MissedReason.ENCRYPTED: "structure.encrypted-content",
    MissedReason.UNSUPPORTED: "structure.unreadable-content",
    MissedReason.DAMAGED: "structure.unreadable-content",
}


class Started(Struct, frozen=True, array_like=True):
    """The first frame of a worker: the layers of its sandbox and the engine of its phrases, or its problem."""

    layers: tuple[str, ...] = ()
    problem: str = ""
    phrases: str = ""


class Job(Struct, frozen=True, array_like=True):
    """One message to examine: its bytes, or none where an open file comes with the job."""

    raw: bytes
    wanted: tuple[Observable, ...] = ()  # that lists in use can match; nothing else is searched for
    envelope: Envelope = NOBODY
    seconds: float = 0.0  # of processor time, after which the message is handed over; 0: never
    quick: bool = False  # True: a message with files is handed over as well
    others: tuple[tuple[str, ...], ...] = ()  # recipients of further tenants, for whom some analyzers run again


class Frame(Struct, frozen=True, array_like=True):
    """The result of one step: its report, which engines may scan, and the parsed message."""

    report: Report
    sound: bool = True  # no limit is tripped: every engine may be asked
    scannable: bool = True  # False: not even for an engine that accepts malformed messages
    summary: MessageSummary | None = None
    contents: tuple[bytes, ...] = ()  # decoded parts that an engine may not find in the raw bytes by itself
    observables: Observables | None = None
    last: bool = False
    handed_over: bool = False  # the worker stops here: the message is too heavy for it, and another begins anew
    weight: Weight | None = None  # as known so far
    group: int = 0  # of recipients: 0 are those of the envelope, the rest are `others` of the job


def run_steps(job: Job, limits: Limits = LIMITS) -> Iterator[Frame]:
    """Yield a frame after each step; the first is the structure's, on which the engines wait."""
    coverage = Coverage(limits)
    raw = job.raw
    started = time.perf_counter()
    structure = check_structure(raw, limits)
    sound = not structure.tripped
    findings = (*_structure_findings(structure), *_sender_findings(raw, structure, job.envelope))
    report = _finished(STRUCTURE, started, findings)
    if not sound:
        # No parser gets a message made to break parsers; only its size and digest are kept.
        scannable = all(trip.limit != LINES for trip in structure.tripped)
        summary = MessageSummary(size=len(raw), sha256=hashlib.sha256(raw).hexdigest())
        yield Frame(report, sound=False, scannable=scannable, summary=summary, last=True)
        return
    yield Frame(report)
    started = time.perf_counter()
    message = parse_message(raw, limits, structure, coverage)
    shown = message.ambiguities or Observable.CONTENTS in job.wanted
    contents = _contents((part.content for part in message.parts), coverage) if shown else ()
    doubts = [_doubt(text) for text in message.ambiguities if text not in structure.ambiguities]
    summary = summarize(message)
    weight = weigh(message)
    yield Frame(_finished(MESSAGE, started, tuple(doubts)), summary=summary, contents=contents, weight=weight)
    if job.seconds and (weight.heavy or (job.quick and weight.has_files)):
        yield HANDED_OVER
        return
    view = View(message, job.envelope, coverage)
    if job.wanted:
        yield _observe(view, job.wanted)
    yield from _analyze(view, summary, job.others)


def _analyze(view: View, summary: MessageSummary, others: tuple[tuple[str, ...], ...]) -> Iterator[Frame]:
    """Yield the report of each analyzer; those that read the recipients run again for each further tenant.

    Each tenant gets the findings for its own recipients: their domains and addresses matter for
    them alone, and no tenant sees the recipients of another.
    """
    depending = []
    for analyzer in LOCAL:
        view.recipients_read = False
        yield Frame(report_of(analyzer.name, partial(analyzer.examine, view)))
        if view.recipients_read:
            depending.append(analyzer)
    # Behind the analyzers, because readers open files, pages and pictures when the first analyzer asks for them.
    compared = _compare(summary, view)
    yield compared
    yield _cover(compared.summary or summary, view, last=not others)
    until = time.perf_counter() + SECOND_LOOKS
    for number, recipients in enumerate(others, start=1):
        again = view.for_recipients(recipients)
        for analyzer in depending:
            look = partial(analyzer.examine, again) if time.perf_counter() < until else _out_of_time
            yield Frame(report_of(analyzer.name, look), group=number)
        yield Frame(_coverage_of(again), last=number == len(others), group=number)


def _compare(summary: MessageSummary, view: View) -> Frame:
    """Return the summary with the keys for campaigns; the verdict does not need them, so a failure is optional."""
    started = time.perf_counter()
    try:
        summary = replace(summary, similarity=find_similarity(view))
    except Exception as error:  # a bug here must not change the verdict
        return Frame(replace(_broken(SIMILARITY, started, error), required=False))
    return Frame(replace(_finished(SIMILARITY, started, ()), required=False), summary=summary)


def _cover(summary: MessageSummary, view: View, *, last: bool) -> Frame:
    """Return the last frame: the missed content, and the summary with the links that were found."""
    started = time.perf_counter()
    try:
        summary = with_links(summary, view)
        # An engine cannot unpack these files by itself.
        contents = _contents((file.content for file in view.opened_files if file.was_hidden), view.coverage)
        weight = Weight(has_heavy_pictures(file.content for file in view.opened_files if file.inside))
    except Exception as error:  # no other step needs them, so that this is a failure like any other
        return Frame(_broken(COVERAGE, started, error), last=last)
    return Frame(_coverage_of(view), summary=summary, contents=contents, weight=weight, last=last)


def _coverage_of(view: View) -> Report:
    return report_of(COVERAGE, lambda: map(_missed, view.coverage.missed))


def _out_of_time() -> Iterable[Finding]:
    raise TimeoutError(f"looking at it for the recipients of each tenant took longer than {SECOND_LOOKS:g} s")


HANDED_OVER = Frame(Report(MESSAGE, True, Status.SKIPPED, 0.0), weight=Weight(heavy=True), last=True, handed_over=True)


def _observe(view: View, wanted: tuple[Observable, ...]) -> Frame:
    started = time.perf_counter()
    try:
        observables = find_observables(view, wanted)
    except Exception as error:  # a list could match a missed observable, so this is a failure like any other
        return Frame(_broken(OBSERVABLES, started, error))
    return Frame(_finished(OBSERVABLES, started, ()), observables=observables)


def _contents(found: Iterable[bytes], coverage: Coverage) -> tuple[bytes, ...]:
    """Return contents to send to an engine one by one, each once, so that it sees everything that we see.

    Contents beyond the limits are recorded as missed.
    """
    chosen: dict[bytes, None] = {}
    room = coverage.limits.engine_bytes
    for content in found:
        if not content or content in chosen:
            continue
        if len(content) > room:
            coverage.beyond("engine_bytes", area("the message"))
        elif len(chosen) >= coverage.limits.engine_contents:
            coverage.beyond("engine_contents", area("the message"))
        else:
            chosen[content] = None
            room -= len(content)
    return tuple(chosen)


def _missed(missed: Missed) -> Finding:
    """Turn content that was not inspected into the finding that keeps the message from being `clean`."""
    facts: dict[str, Fact] = {"sentence": missed.detail, "reason": missed.reason}
    return Finding(
        _MISSED_FINDINGS[missed.reason], missed.place, facts | ({"limit": missed.limit} if missed.limit else {})
    )


def _structure_findings(structure: StructureReport) -> Iterator[Finding]:
    for trip in structure.tripped:
        yield Finding("structure.limit", place=trip.place, facts={"limit": trip.limit, "sentence": trip.sentence})
    yield from map(_doubt, structure.ambiguities)


def _sender_findings(raw: bytes, structure: StructureReport, envelope: Envelope) -> Iterator[Finding]:
    nodes = structure.tree.nodes if structure.tree else ()
    for node in nodes[:1]:
        for sentence in find_sender_doubts(raw, node.body, node.fields):
            yield Finding(AMBIGUOUS_SENDER, area("From"), {"sentence": sentence})
    for sentence in find_envelope_doubts(envelope.sender):
        yield Finding(AMBIGUOUS_SENDER, area("envelope"), {"sentence": sentence})


def _doubt(sentence: str) -> Finding:
    return Finding("structure.ambiguous", facts={"sentence": sentence})


def report_of(name: str, look: Callable[[], Iterable[Finding | Omitted]]) -> Report:
    """Run one analyzer; a bug in it must not stop the others, so an exception becomes its failure."""
    started = time.perf_counter()
    try:
        found = tuple(look())
    except Exception as error:  # any error is reported
        return _broken(name, started, error)
    omitted = tuple(dict.fromkeys(each for each in found if isinstance(each, Omitted)))
    report = _finished(name, started, tuple(each for each in found if isinstance(each, Finding)))
    return replace(report, omitted=omitted) if omitted else report


def _finished(name: str, started: float, findings: tuple[Finding, ...]) -> Report:
    took = (time.perf_counter() - started) * 1000
    return Report(name, True, Status.FINISHED, round(took, 3), findings)


def _broken(name: str, started: float, error: Exception) -> Report:
    sentence = f"The analyzer {name} broke on this message ({type(error).__name__}: {error})."
    took = (time.perf_counter() - started) * 1000
    failure = Failure(name, FailureKind.CRASHED, sentence[:300])  # shown: an error of ours
    return Report(name, True, Status.FAILED, round(took, 3), failure=failure)
