"""Recipients of several tenants: looked at once, and each tenant is told of its own recipients alone."""

import time
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed
from mailwarden.engines.engine import EngineInfo, EngineSettings, ScanEngine
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Finding, Report
from mailwarden.model.scan import RawMessage
from mailwarden.pipeline import worker_steps
from mailwarden.pipeline.collector import Audience, Collected, Collector
from mailwarden.pipeline.worker_steps import Job, run_steps
from tests.samples.in_process_workers import InProcessWorkers
from tests.samples.judged import missing_required
from tests.samples.scans import scan_of

SAMPLES = sorted(Path("tests/analyzers").rglob("*.eml"))
ACME, CLUB = ("bob@acme.example", "eve@acme.example"), ("ann@club.example",)
ENVELOPE = Envelope("x@sender.example", (*ACME, *CLUB), "192.0.2.7")
LURE = (
    b"From: ann@club.example <thief@stranger.example>\r\nSubject: ann@club.example, your mailbox is full\r\n"
    b"Content-Type: text/html\r\n\r\n"
    b'<p>Dear user, <a href="https://stranger.example/login?u=ann@club.example">sign in here</a> today.</p>\r\n'
)


def examined(raw: bytes, recipients: tuple[str, ...], *others: tuple[str, ...]) -> list[dict[str, Report]]:
    """Return the reports of a worker for each group of recipients."""
    found: list[dict[str, Report]] = [{} for _ in range(1 + len(others))]
    frames = list(run_steps(Job(raw, envelope=Envelope("x@sender.example", recipients), others=others)))
    assert [frame.last for frame in frames] == [False] * (len(frames) - 1) + [True]
    for frame in frames:
        found[frame.group][frame.report.analyzer] = frame.report
    return found


def test_a_rescan_equals_a_separate_scan() -> None:
    assert len(SAMPLES) > 100
    for path in SAMPLES[::12]:
        raw = path.read_bytes()
        people = ("ann@south.example", "bob@company.example", "bob@corp.example")
        first, second = examined(raw, ACME, people)
        (alone,) = examined(raw, people)
        together = {name: second.get(name, report).findings for name, report in first.items()}
        assert together == {name: report.findings for name, report in alone.items()}, path


def test_findings_about_a_recipient_are_for_its_own_tenant() -> None:
    first, second = examined(LURE, ACME, CLUB)
    own = {finding.name for report in second.values() for finding in report.findings}
    others = {finding.name for report in first.values() for finding in report.findings}
    assert {"sender.recipient-in-name", "wording.recipient-in-subject"} <= own
    assert not {"sender.recipient-in-name", "wording.recipient-in-subject"} & others


def test_only_analyzers_that_read_the_recipients_look_again() -> None:
    _, second = examined(LURE, ACME, CLUB)
    assert {"sender", "urls", "html"} <= set(second)
    assert not {"attachments", "pdf", "lures"} & set(second)


def test_tenants_beyond_the_time_for_second_looks_are_a_failure_and_never_clean(monkeypatch) -> None:
    monkeypatch.setattr(worker_steps, "SECOND_LOOKS", -1.0)
    _, second = examined(LURE, ACME, CLUB)
    failed = {name for name, report in second.items() if report.failure}
    assert {"sender", "urls"} <= failed


class Engine(ScanEngine[EngineSettings]):
    """Says what it was taught, and notes who asked."""

    timeout = 5.0
    accepts_malformed: ClassVar[bool] = True

    def __init__(self, name: str, *, learns: bool, fails_for: str = "nobody") -> None:
        super().__init__(name, EngineSettings())
        self.learns = learns  # type: ignore[misc]  # one class plays both kinds
        self.fails_for = fails_for
        self.asked: list[tuple[tuple[str, ...], str]] = []

    async def check(self) -> EngineInfo:
        return EngineInfo("there")

    async def ask(self, raw: RawMessage, envelope: Envelope, classifier: str = "") -> EngineAnswer:
        self.asked.append((envelope.recipients, classifier))
        if classifier == self.fails_for:
            raise EngineFailed(FailureKind.UNREACHABLE, "Not there.")
        return EngineAnswer((Finding(f"{self.name}.taught-by-{classifier or 'nobody'}"),))


async def collect(workers: InProcessWorkers, engines: tuple[Engine, ...], *audiences: Audience) -> list[Collected]:
    collector = Collector(cast("Any", workers), cast("Any", engines))
    scan = scan_of(LURE, ENVELOPE, *(audience.recipients for audience in audiences))
    return await collector.collect(scan, time.monotonic() + 10.0, [audience.classifier for audience in audiences])


def named(collected: Collected, engine: str) -> list[str]:
    return [finding.name for name, finding in collected.evidence.findings if name == engine]


@pytest.mark.contract("3 mixed recipients")
async def test_learned_evidence_belongs_to_its_tenant_alone() -> None:
    rspamd, clamav, workers = Engine("rspamd", learns=True), Engine("clamav", learns=False), InProcessWorkers()
    audiences = (Audience(ACME, "acme"), Audience(CLUB, ""), Audience(("x@nobody.example",), ""))
    found = await collect(workers, (rspamd, clamav), *audiences)
    taught = [["rspamd.taught-by-acme"], ["rspamd.taught-by-nobody"], ["rspamd.taught-by-nobody"]]
    assert [named(each, "rspamd") for each in found] == taught
    assert sorted(rspamd.asked) == [((*CLUB, "x@nobody.example"), ""), (ACME, "acme")]
    assert clamav.asked == [(ENVELOPE.recipients, "")]
    assert workers.calls == 1


async def test_without_learned_statistics_every_engine_is_asked_once() -> None:
    rspamd, clamav = Engine("rspamd", learns=True), Engine("clamav", learns=False)
    await collect(InProcessWorkers(), (rspamd, clamav), Audience(ACME, ""), Audience(CLUB, ""))
    assert rspamd.asked == clamav.asked == [(ENVELOPE.recipients, "")]


async def test_an_engine_that_fails_for_one_classifier_fails_for_its_tenant_alone() -> None:
    rspamd = Engine("rspamd", learns=True, fails_for="acme")
    acme, club = await collect(InProcessWorkers(), (rspamd,), Audience(ACME, "acme"), Audience(CLUB, ""))
    assert [failure.analyzer for failure in missing_required(acme.evidence)] == ["rspamd"]
    assert missing_required(club.evidence) == ()


@pytest.mark.parametrize("stop_at", [0, 1, 2])
async def test_a_second_look_that_was_cut_short_is_a_failure(stop_at: int) -> None:
    acme, club = await collect(InProcessWorkers(stop_at), (), Audience(ACME, ""), Audience(CLUB, ""))
    assert acme.evidence.failures == ()
    assert len(missing_required(club.evidence)) > 3
