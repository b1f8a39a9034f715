"""The deadlines of the engines, and what becomes of a call when its message is given up."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, cast

import pytest

from mailwarden.analysis.analyzer import EngineAnswer
from mailwarden.engines.engine import EngineInfo, EngineSettings, ScanEngine
from mailwarden.errors import Overloaded
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Report, Status
from mailwarden.model.scan import RawMessage
from mailwarden.pipeline import engine_questions
from mailwarden.pipeline.collector import Collected, Collector
from mailwarden.pipeline.worker_steps import Frame, Job, run_steps
from tests.samples.in_process_workers import InProcessWorkers
from tests.samples.scans import collect_one
from tests.waiting import eventually

ENVELOPE = Envelope("ada@north.example", ("bob@south.example",))
LIGHT = b"From: Ada <ada@north.example>\r\nTo: bob@south.example\r\nSubject: Minutes\r\n\r\nSee you on Monday.\r\n"


class Engine(ScanEngine[EngineSettings]):
    """Answers at once, or never."""

    timeout = 60.0
    accepts_malformed: ClassVar[bool] = True

    def __init__(self, name: str, *, answers: bool = True, timeout: float = 60.0) -> None:
        super().__init__(name, EngineSettings())
        self.answers = answers
        self.timeout = timeout
        self.asked = self.cancelled = 0

    async def check(self) -> EngineInfo:
        return EngineInfo("there")

    async def ask(self, raw: RawMessage, envelope: Envelope, classifier: str = "") -> EngineAnswer:
        self.asked += 1
        try:
            await asyncio.sleep(0 if self.answers else 3_600)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return EngineAnswer(())


class BrokenEngine(Engine):
    async def ask(self, raw: RawMessage, envelope: Envelope, classifier: str = "") -> EngineAnswer:
        raise ZeroDivisionError


class StuckWorkers(InProcessWorkers):
    """Sends the steps up to the given one, and nothing after it until it is allowed to."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.allowed = asyncio.Event()
        self.refuses = False

    async def run(
        self, raw: RawMessage, take: Callable[[Frame], None], wanted: Any, envelope: Envelope, *, flow: Any, others: Any
    ) -> None:
        for number, frame in enumerate(run_steps(Job(b"".join(raw.chunks()), wanted, envelope, others=others))):
            if number == self.steps:
                await self.allowed.wait()
            if self.refuses and number >= self.steps:
                raise Overloaded("Too many heavy messages.", retry_after=2)
            take(frame)


async def collect(engines: tuple[Engine, ...], deadline: float = 30.0, workers: Any = None) -> Collected:
    collector = Collector(cast("Any", workers or InProcessWorkers()), cast("Any", engines))
    return await collect_one(collector, LIGHT, ENVELOPE, deadline)


def report_of(collected: Collected, engine: str) -> Report:
    (report,) = (each for each in collected.evidence.reports if each.analyzer == engine)
    return report


@pytest.mark.parametrize(("timeout", "deadline"), [(0.2, 30.0), (60.0, 0.8)])
async def test_an_engine_that_is_late_fails_and_the_others_stand(timeout: float, deadline: float) -> None:
    late, quick = Engine("rspamd", answers=False, timeout=timeout), Engine("clamav")
    collected = await collect((late, quick), deadline)
    report = report_of(collected, "rspamd")
    assert report.status is Status.FAILED
    assert report.failure
    assert report.failure.kind is FailureKind.TIMEOUT
    assert "did not answer within" in report.failure.sentence
    assert late.cancelled == 1
    assert report_of(collected, "clamav").status is Status.FINISHED


async def test_each_engine_has_its_own_timeout() -> None:
    first, second = Engine("rspamd", answers=False, timeout=0.3), Engine("clamav", answers=False, timeout=0.1)
    collected = await collect((first, second))
    took = [report_of(collected, name).milliseconds for name in ("rspamd", "clamav")]
    assert took[0] >= 290
    assert 90 <= took[1] < took[0]


async def test_without_time_left_no_engine_is_asked() -> None:
    engine = Engine("rspamd")
    collected = await collect((engine,), 0.0)
    assert report_of(collected, "rspamd").status is not Status.FINISHED
    assert engine.asked == 0


async def test_a_scan_that_is_given_up_ends_the_calls() -> None:
    engine = Engine("rspamd", answers=False)
    scan = asyncio.create_task(collect((engine,)))
    await eventually(lambda: engine.asked)
    scan.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scan
    assert engine.cancelled == 1


async def test_a_message_without_a_place_ends_the_calls() -> None:
    engine, workers = Engine("rspamd", answers=False), StuckWorkers(2)
    scan = asyncio.create_task(collect((engine,), workers=workers))
    await eventually(lambda: engine.asked)
    workers.refuses = True
    workers.allowed.set()
    with pytest.raises(Overloaded):
        await scan
    assert engine.cancelled == 1


async def test_a_bug_in_an_engine_ends_the_scan() -> None:
    other = Engine("clamav", answers=False)
    with pytest.raises(ZeroDivisionError):
        await collect((BrokenEngine("rspamd"), other))
    assert other.cancelled == other.asked


async def test_an_engine_begins_when_the_message_is_parsed() -> None:
    for steps, begun in ((1, 0), (2, 1)):
        engine, workers = Engine("rspamd"), StuckWorkers(steps)
        scan = asyncio.create_task(collect((engine,), workers=workers))
        await asyncio.sleep(0.05)  # the time under test: an engine that did not wait would be asked within it
        assert engine.asked == begun
        workers.allowed.set()
        assert report_of(await scan, "rspamd").status is Status.FINISHED


async def test_an_engine_does_not_wait_long_for_the_weight(monkeypatch) -> None:
    monkeypatch.setattr(engine_questions, "_WEIGHING_TIMEOUT", 0.05)
    engine, workers = Engine("rspamd"), StuckWorkers(1)
    scan = asyncio.create_task(collect((engine,), workers=workers))
    await eventually(lambda: engine.asked)
    workers.allowed.set()
    assert report_of(await scan, "rspamd").status is Status.FINISHED
