"""ONE guard request, from admitted to finished. Read this page first: it is what Mailwarden does."""

import time
from datetime import UTC, datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.analysis.analyzer import RawMessage
from mailwarden.analysis.collection import Collector, Observer, ignore
from mailwarden.analysis.fair_queue import Flow
from mailwarden.errors import EngineUnavailable
from mailwarden.guard.comparison import Compared, Comparison
from mailwarden.guard.learning import Learning
from mailwarden.guard.relationship import Relationship
from mailwarden.history.writer import HistoryWriter
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import Assignment
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import Policy
from mailwarden.policy.weights import for_tenant
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

log = get_logger(__name__)


class GuardRequest(Struct, frozen=True):
    """One message on its way through guard."""

    ggrid: UUID
    source: str
    envelope: Envelope
    assignment: Assignment
    raw: RawMessage
    deadline: float  # seconds left for the analysis
    stored: bool = True  # False: a person tries something out, and nothing is to remain of it
    session_open: bool = False  # the sender waits for an answer over SMTP, which may be a refusal

    @property
    def flow(self) -> Flow:
        """Return whose turn it is where workers are scarce."""
        return str(self.assignment.tenant), self.source, self.envelope.remote_address or ""


class Examined(Struct, frozen=True):
    """A guard request that is judged and decided, and not yet remembered."""

    finished: FinishedRequest
    compared: Compared
    stored: bool


class Processing:
    def __init__(
        self,
        *,
        guard: str,
        collector: Collector,
        relationship: Relationship,
        comparison: Comparison,
        learning: Learning | None,
        policy: Policy,
        history: HistoryWriter,
        tempfail: bool,
        metrics: Metrics,
    ) -> None:
        self._guard = guard
        self._collector = collector
        self._relationship = relationship
        self._comparison = comparison
        self._learning = learning
        self._policy = policy
        self._history = history
        self._tempfail = tempfail
        self._finished = metrics.counter("guard_requests", "Finished guard requests.", "verdict", "decision")
        self._failures = metrics.counter("analyzer_failures", "Analyzers that could not finish.", "analyzer", "kind")

    async def process(self, request: GuardRequest, observe: Observer = ignore) -> FinishedRequest:
        """Return the finished request; `observe` is told each report when it comes."""
        examined = await self.examine(request, observe)
        self.keep(examined)
        return examined.finished

    async def examine(self, request: GuardRequest, observe: Observer = ignore) -> Examined:
        """Judge and decide; a source that carries decisions out has them kept when it has done so."""
        created = datetime.now(UTC)
        until = time.monotonic() + request.deadline
        tenant = request.assignment.tenant

        # Look: every analyzer says what it noticed, or that it could not finish.
        wanted = await self._comparison.prepare(tenant)
        learner = self._learning.learner(tenant) if self._learning else ""
        collected = await self._collector.collect(
            request.raw, request.envelope, request.deadline, wanted, observe, learner=learner, flow=request.flow
        )

        # Remember: whether the tenant has heard from the sender before. What cannot be told now says nothing.
        ambiguous = collected.evidence.has(AMBIGUOUS_SENDER)
        report = await self._relationship.report(
            tenant, request.envelope, collected.summary, ambiguous_sender=ambiguous
        )
        collected = replace(collected, evidence=Evidence((*collected.evidence.reports, report)))
        observe(report)

        # Compare: which entries of the lists act on the message. Of rivals only the winner does.
        compared = self._comparison.compare(tenant, request.envelope, collected, wanted)
        evidence = compared.evidence
        observe(evidence.reports[-1])

        # Judge: what the message IS. A conviction stands whatever failed; nothing incomplete is ever clean.
        policy = for_tenant(self._policy, request.assignment.weights)
        judgement = judge(evidence, policy)
        if judgement.verdict is Verdict.UNKNOWN and self._tempfail:
            raise EngineUnavailable(judgement.summary)

        # Decide: what HAPPENS to it, for this tenant. Lists that allow act here, and never on the verdict.
        patience = until - time.monotonic()
        rest = await self._comparison.without_allowed_files(request.raw, compared, patience)
        eased = judge(rest, policy) if rest else None
        ruling = decide(
            judgement,
            request.assignment,
            policy,
            session_open=request.session_open,
            listing=compared.listing,
            eased=eased,
        )

        finished = FinishedRequest(
            ggrid=request.ggrid,
            tenant=tenant,
            created=created,
            completed=datetime.now(UTC),
            source=request.source,
            guard=self._guard,
            envelope=request.envelope,
            summary=collected.summary,
            evidence=evidence,
            judgement=judgement,
            ruling=ruling,
            profile=request.assignment.profile,
            weights=request.assignment.weights,
        )
        return Examined(finished, compared, request.stored)

    def keep(self, examined: Examined) -> None:
        """Remember it: off the hot path, so that a slow or absent database costs no scan."""
        if examined.stored:
            self._history.save(examined.finished)
            self._comparison.count(examined.compared)
        self._count(examined.finished)

    def _count(self, finished: FinishedRequest) -> None:
        verdict, decision = finished.judgement.verdict, finished.ruling.decision
        self._finished.labels(verdict, decision).inc()
        for failure in finished.evidence.failures:
            self._failures.labels(failure.analyzer, failure.kind).inc()
            log.warning("analyzer_failed", analyzer=failure.analyzer, kind=failure.kind, sentence=failure.sentence)
        took = round((finished.completed - finished.created).total_seconds() * 1000, 1)
        log.info("judged", verdict=verdict, decision=decision, tags=finished.tags, tenant=str(finished.tenant), ms=took)
