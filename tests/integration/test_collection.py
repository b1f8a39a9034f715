"""Collecting evidence with real workers and the real engines."""

import pytest

from mailwarden.engines.clamav import ClamavEngine, ClamavSettings
from mailwarden.message.parser import parse_message
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Status
from mailwarden.pipeline.collector import Collector
from mailwarden.pipeline.worker_pool import Timeouts, WorkerPool
from tests.samples.judged import missing_required
from tests.samples.scans import collect_one
from workshop.torture.ambiguous import ambiguous
from workshop.torture.eicar import EICAR

ENVELOPE = Envelope("ann@sender.example", ("bob@corp.example",))


@pytest.fixture
async def collector(engines):
    workers = WorkerPool(1, 1024, Timeouts(structure=20.0))
    await workers.start()
    yield Collector(workers, (ClamavEngine("clamav", ClamavSettings(engines.clamd.address, max_concurrency=4)),))
    await workers.stop()


@pytest.mark.slow
async def test_clamav_gets_decoded_content_that_it_cannot_decode(engines, collector):
    hidden = [
        case
        for case in ambiguous()
        if engines.clamd.scan(case.raw).endswith("OK")
        and any(part.content.startswith(EICAR) for part in parse_message(case.raw).parts)
    ]
    assert hidden, "no message shows the difference"
    for case in hidden:
        collected = await collect_one(collector, case.raw, ENVELOPE, 60.0)
        names = [finding.name for _, finding in collected.evidence.findings]
        assert "clamav.malware" in names, case.name


async def test_beyond_the_limit_of_lines_no_engine_is_asked(collector):
    collected = await collect_one(collector, b"\n" * 6_000_000, ENVELOPE, 60.0)
    status = {report.analyzer: report.status for report in collected.evidence.reports}
    assert status["clamav"] is Status.SKIPPED
    assert "lines" in [finding.facts.get("limit") for _, finding in collected.evidence.findings]


async def test_a_concluding_analyzer_that_breaks_is_a_failure_of_its_own(collector, monkeypatch):
    class Broken:
        name = "broken"

        def conclude(self, known):
            raise ZeroDivisionError

    monkeypatch.setattr("mailwarden.pipeline.collector.Collector.concluding", (Broken(),))
    collected = await collect_one(collector, b"From: a@b.example\r\n\r\nhi", ENVELOPE, 60.0)
    assert [failure.analyzer for failure in missing_required(collected.evidence)] == ["broken"]
