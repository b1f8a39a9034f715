"""What a worker process sends for one message, and when."""

import socket
import struct
import time
from collections.abc import Iterator

import msgspec
import pytest

from mailwarden.pipeline import worker, worker_steps
from mailwarden.pipeline.examination import Examination
from mailwarden.pipeline.registry import COVERAGE, LOCAL, MESSAGE, SIMILARITY, STRUCTURE
from mailwarden.pipeline.worker_steps import HANDED_OVER, Frame, Job, run_steps

PLAIN = b"From: ann@sender.example\r\nTo: bob@corp.example\r\nSubject: lunch\r\n\r\nAt noon?\r\n"
STEPS = [STRUCTURE, MESSAGE, *(analyzer.name for analyzer in LOCAL), SIMILARITY, COVERAGE]


def batches_of(job: Job) -> list[list[Frame]]:
    """Return what a worker sends for a job, batch by batch."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            worker._serve(job, theirs)
        sent = b"".join(iter(lambda: ours.recv(65_536), b""))
    batches = []
    while sent:
        (length,) = struct.unpack_from(">I", sent)
        batches.append(msgspec.msgpack.decode(sent[4 : 4 + length], type=list[Frame]))
        sent = sent[4 + length :]
    return batches


def names(batch: list[Frame]) -> list[str]:
    return [frame.report.analyzer for frame in batch]


def test_a_message_takes_two_batches(monkeypatch) -> None:
    monkeypatch.setattr(worker, "_FLUSH_EVERY", 60.0)
    first, second = batches_of(Job(PLAIN))
    assert names(first) == STEPS[:2]
    assert names(second) == STEPS[2:]


def test_the_structure_of_a_long_message_is_sent_before_it_is_parsed(monkeypatch) -> None:
    monkeypatch.setattr(worker, "_FLUSH_EVERY", 60.0)
    first, second, _ = batches_of(Job(PLAIN + b"x " * 40_000))
    assert (names(first), names(second)) == ([STRUCTURE], [MESSAGE])


def test_steps_that_take_long_are_sent_as_they_finish(monkeypatch) -> None:
    def slow(job: Job) -> Iterator[Frame]:
        for frame in run_steps(job):
            time.sleep(worker._FLUSH_EVERY * 1.5 if frame.report.analyzer == LOCAL[3].name else 0)
            yield frame

    monkeypatch.setattr(worker, "run_steps", slow)
    batches = batches_of(Job(PLAIN))
    assert LOCAL[3].name in {batch[-1].report.analyzer for batch in batches}
    assert [name for batch in batches for name in names(batch)] == STEPS


@pytest.mark.parametrize("at", [0, 5])
def test_a_message_without_time_left_is_handed_over(monkeypatch, at: int) -> None:
    def interrupted(job: Job) -> Iterator[Frame]:
        for number, frame in enumerate(run_steps(job)):
            if number == at:
                raise worker.OutOfTime
            yield frame

    monkeypatch.setattr(worker, "run_steps", interrupted)
    sent = [frame for batch in batches_of(Job(PLAIN)) for frame in batch]
    assert names(sent[:-1]) == STEPS[:at]
    assert sent[-1] == HANDED_OVER


def examined(raw: bytes) -> Examination:
    examination = Examination()
    for frame in run_steps(Job(raw)):
        examination.take(frame)
    examination.finish(None)
    return examination


def test_the_keys_for_campaigns_are_in_the_summary_and_not_in_the_evidence() -> None:
    text = b" ".join(b"word%c%c" % (97 + number, 97 + number) for number in range(20))
    examination = examined(PLAIN + text)
    assert examination.summary
    assert examination.summary.similarity.sketch
    assert SIMILARITY not in examination.reports


def test_a_failure_of_the_keys_is_reported_and_optional(monkeypatch) -> None:
    def broken(_: object) -> object:
        raise ValueError("a bug")

    monkeypatch.setattr(worker_steps, "find_similarity", broken)
    examination = examined(PLAIN)
    report = examination.reports[SIMILARITY]
    assert report.failure
    assert not report.required, "the verdict does not depend on it"
    assert examination.summary
    assert not examination.summary.similarity.keys
    assert COVERAGE in examination.reports
