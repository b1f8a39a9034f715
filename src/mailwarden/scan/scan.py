"""One scan, from admitted to finished. Read this page first: it is what Mailwarden does."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Protocol
from uuid import UUID

import structlog
from msgspec import Struct
from msgspec.structs import replace

from mailwarden.errors import EngineUnavailable
from mailwarden.journal.journal import Journal
from mailwarden.model.evidence import Evidence, Status
from mailwarden.model.observables import Observable
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import RecipientGroup
from mailwarden.pipeline.collector import Collected, Collector
from mailwarden.pipeline.examination import Observer, ignore
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import Policy, for_tenant
from mailwarden.scan.list_lookup import ListLookup
from mailwarden.scan.shared_answer import Part, answer_of, settle, undecided
from mailwarden.senders.lookup import SenderHistoryReporter
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.tracing import NO_TRACING, Tracing

log = get_logger(__name__)


class ScanParts(Struct, frozen=True):
    """The parts of a scan that depend on settings; a reload replaces them together."""

    collector: Collector
    list_lookup: ListLookup
    tempfail: bool


class Case(Struct, frozen=True):
    """One tenant's part of a scan, with the analysis for its recipients."""

    parts: ScanParts
    scan: Scan
    group: RecipientGroup
    collected: Collected
    needed_observables: tuple[Observable, ...]
    created: datetime
    until: float  # the deadline of the analysis, by the monotonic clock


class Classifiers(Protocol):
    """Which classifier of an engine has been trained with a tenant's reports."""

    def classifier(self, tenant: UUID) -> str: ...


class Processing:
    def __init__(
        self,
        *,
        guard: str,
        timeout: float,
        parts: ScanParts,
        sender_history: SenderHistoryReporter,
        classifiers: Classifiers | None,
        policy: Policy,
        journal: Journal,
        metrics: Metrics,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._guard = guard
        self._timeout = timeout  # seconds that an analysis may take, however long its caller would wait
        self._tracing = tracing
        self.parts = parts
        self._sender_history = sender_history
        self._classifiers = classifiers
        self._policy = policy
        self._journal = journal
        # Looking a label up costs more than counting.
        self._finished_as = cache(
            metrics.counter("guard_requests", "Finished guard requests.", "verdict", "decision").labels
        )
        seconds = metrics.histogram("engine_scan_seconds", "Seconds an engine took for a scan.", "engine")
        self._seconds_of = cache(seconds.labels)
        self._failures = metrics.counter("analyzer_failures", "Analyzers that could not finish.", "analyzer", "kind")

    def use(self, parts: ScanParts) -> None:
        """Use other parts for the requests that begin from now on."""
        self.parts = parts

    async def answer(self, scan: Scan, observe: Observer = ignore) -> FinishedRequest:
        """Return the answer for all recipients; `observe` is called with each report as it arrives."""
        settled = settle(await self.judge(scan, observe))
        await self.keep(settled)
        return answer_of(settled)

    async def judge(self, scan: Scan, observe: Observer = ignore) -> list[Part]:
        """Analyze once, then judge and decide for each tenant; the source calls `keep` after it acted."""
        structlog.contextvars.bind_contextvars(ggrid=str(scan.ggrid))
        with self._tracing.span("scan", ggrid=str(scan.ggrid), source=scan.source) as span:
            judged = await self._judge(scan, observe)
            first = judged[0].finished
            span.set(verdict=first.judgement.verdict, decision=first.ruling.decision, tenants=len(judged))
            return judged

    async def _judge(self, scan: Scan, observe: Observer) -> list[Part]:
        created = datetime.now(UTC)
        until = min(scan.deadline, time.monotonic() + self._timeout)
        parts = self.parts

        # Collect: every analyzer reports its findings, or that it could not finish.
        needed_observables = await parts.list_lookup.prepare([group.tenant for group in scan.groups])
        classifiers = [self._classifier(group.tenant) for group in scan.groups]
        collected = await parts.collector.collect(scan, until, classifiers, needed_observables, observe)

        self._measure(collected[0], parts.collector.engine_names)

        judged: list[Part] = []
        for group, tenant_collected in zip(scan.groups, collected, strict=True):
            if judged:
                await asyncio.sleep(0)  # there may be a thousand tenants: let other messages run
            case = Case(parts, scan, group, tenant_collected, needed_observables, created, until)
            judged.append(await self._conclude(case, ignore if judged else observe))
        if parts.tempfail and (unfinished := undecided(judged)):
            raise EngineUnavailable(unfinished.judgement.summary)
        return judged

    async def _conclude(self, case: Case, observe: Observer) -> Part:
        """Judge and decide for one tenant, by its own recipients, sender history, lists, weights and profile."""
        scan, assignment, collected = case.scan, case.group.assignment, case.collected
        tenant, envelope = assignment.tenant, replace(scan.envelope, recipients=case.group.recipients)

        # Recall: whether the tenant knows the sender. A lookup that fails adds no finding.
        report = await self._sender_history.report(tenant, envelope, collected.summary, collected.evidence)
        collected = replace(collected, evidence=Evidence((*collected.evidence.reports, report)))
        observe(report)

        # Look up: which list entries match the message. Of conflicting entries only the winner takes effect.
        compared = case.parts.list_lookup.compare(tenant, envelope, collected, case.needed_observables)
        evidence = compared.evidence
        observe(evidence.reports[-1])

        # Judge: the verdict. A conviction stands even if other analyzers failed; incomplete is never clean.
        policy = for_tenant(self._policy, assignment.weights)
        judgement = judge(evidence, policy)

        # Decide: the action for this tenant. Allowlists take effect here, and never on the verdict.
        remaining = case.until - time.monotonic()
        without_allowed = await case.parts.list_lookup.without_allowed_files(scan.message, compared, remaining)
        rest_judgement = judge(without_allowed.evidence, policy) if without_allowed else None
        ruling = decide(
            judgement,
            assignment,
            policy,
            session_open=scan.session_open,
            listing=compared.listing,
            rest_judgement=rest_judgement,
        )

        finished = FinishedRequest(
            ggrid=scan.ggrid,
            tenant=tenant,
            created=case.created,
            completed=datetime.now(UTC),
            source=scan.source,
            guard=self._guard,
            envelope=envelope,
            summary=collected.summary,
            evidence=evidence,
            judgement=judgement,
            ruling=ruling,
            profile=assignment.profile,
            weights=assignment.weights,
            assigned_by=assignment.by,
            session_open=scan.session_open,
            listing=compared.listing.recorded(),
            cleared_files=without_allowed.cleared_files if without_allowed else frozenset(),
        )
        return Part(finished, compared, scan.stored)

    def _classifier(self, tenant: UUID) -> str:
        return self._classifiers.classifier(tenant) if self._classifiers else ""

    async def keep(self, parts: Sequence[Part]) -> None:
        """Store them in history: return when their rows are on disk, or in history, or after two seconds."""
        await self._journal.append(self._counted(parts))

    def keep_unconfirmed(self, parts: Sequence[Part]) -> None:
        """Store them in history without waiting for the disk: for a caller that is cancelled."""
        self._journal.enqueue(self._counted(parts))

    def _counted(self, parts: Sequence[Part]) -> list[FinishedRequest]:
        """Count them, and return those that history stores."""
        for part in parts:
            if part.stored:
                self.parts.list_lookup.count(part.compared)
            self._count(part.finished)
        return [part.finished for part in parts if part.stored]

    def _measure(self, collected: Collected, engines: frozenset[str]) -> None:
        for report in collected.evidence.reports:
            if report.analyzer in engines and report.status is not Status.SKIPPED:
                self._seconds_of(report.analyzer).observe(report.milliseconds / 1000)

    def _count(self, finished: FinishedRequest) -> None:
        verdict, decision = finished.judgement.verdict, finished.ruling.decision
        self._finished_as(verdict, decision).inc()
        for failure in finished.evidence.failures:
            self._failures.labels(failure.analyzer, failure.kind).inc()
            log.warning("analyzer_failed", analyzer=failure.analyzer, kind=failure.kind, sentence=failure.sentence)
        took = round((finished.completed - finished.created).total_seconds() * 1000, 1)
        log.info("judged", verdict=verdict, decision=decision, tags=finished.tags, tenant=str(finished.tenant), ms=took)
