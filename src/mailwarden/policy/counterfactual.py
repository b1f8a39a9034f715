"""What would have changed the outcome of a message: reasons taken away, points to the next line, the entry that won.

Pure: the findings behind a reason are taken out of the evidence, and policy judges and decides what is left.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.lists.findings import ANALYZER, hits_told
from mailwarden.model.evidence import Evidence
from mailwarden.model.judgement import Judgement, Reason
from mailwarden.model.listing import ListHit, Listing
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import AssignedBy, Assignment
from mailwarden.policy.decide import DEFAULT_TENANT_TAG, decide
from mailwarden.policy.judge import CONVICTIONS, THREATS, judge
from mailwarden.policy.rule import CONVICTION, SUSPICION
from mailwarden.policy.rules import Policy
from mailwarden.policy.weights import for_tenant

MAX_TRIED = 20  # rules that are taken away by themselves; the weightiest come first


class Without(Struct, frozen=True):
    """What the message would be without some of its reasons; the decision is None where it cannot be told."""

    reasons: tuple[Reason, ...]
    verdict: Verdict
    decision: Decision | None


class Distance(Struct, frozen=True):
    """How many points a verdict has, and from how many on it would be the verdict."""

    verdict: Verdict
    points: int
    line: int

    @property
    def missing(self) -> int:
        return self.line - self.points


class Counterfactual(Struct, frozen=True):
    """`alone` holds what a single rule decides; where none does, `together` holds the fewest that do."""

    verdict: Verdict  # by the rules of now
    decision: Decision | None
    rules_changed: bool = False  # since the message was judged
    alone: tuple[Without, ...] = ()
    together: Without | None = None
    nearest: Distance | None = None  # the worse verdict that is closest
    entry: ListHit | None = None
    without_entry: Decision | None = None


class _Trial:
    """One message, judged again with less."""

    def __init__(self, request: FinishedRequest, policy: Policy) -> None:
        self._policy = policy
        by = AssignedBy.DEFAULT if DEFAULT_TENANT_TAG in request.ruling.tags else AssignedBy.REQUEST
        self._assignment = Assignment(request.tenant, by, request.profile)
        self._session_open = request.ruling.decision is Decision.BOUNCE
        self.needs = {rule.id: rule.needs[0] for rule in policy.rules}
        self.evidence = request.evidence

    def judge(self, evidence: Evidence) -> tuple[Judgement, Decision]:
        judgement = judge(evidence, self._policy)
        listing = Listing(acting=tuple(listed(evidence, self._assignment.tenant)))
        ruling = decide(judgement, self._assignment, self._policy, session_open=self._session_open, listing=listing)
        return judgement, ruling.decision

    def without_rules(self, rules: Iterable[str]) -> Evidence:
        """Return the evidence without what makes these rules speak."""
        names = {self.needs[rule] for rule in rules if rule in self.needs}
        return without_findings(self.evidence, names)


def what_would_change(request: FinishedRequest, policy: Policy) -> Counterfactual:
    policy = for_tenant(policy, request.weights)
    trial = _Trial(request, policy)
    judgement, decision = trial.judge(request.evidence)
    if (judgement.verdict, judgement.points) != (request.judgement.verdict, request.judgement.points):
        return Counterfactual(judgement.verdict, None, rules_changed=True)
    # Where it comes out differently something counted that history does not hold, such as a file that was cleared.
    told = decision is request.ruling.decision
    alone = tuple(_alone(trial, judgement, decision, told=told))
    entry = request.ruling.entry
    return Counterfactual(
        verdict=judgement.verdict,
        decision=decision if told else None,
        alone=alone,
        together=None if alone else _together(trial, judgement, told=told),
        nearest=nearest_verdict(judgement),
        entry=entry,
        without_entry=_without_entry(trial, entry) if entry and told else None,
    )


def _alone(trial: _Trial, judgement: Judgement, decision: Decision, *, told: bool) -> Iterator[Without]:
    for rule, reasons in list(by_rule(judgement).items())[:MAX_TRIED]:
        left, then = trial.judge(trial.without_rules((rule,)))
        if left.verdict is not judgement.verdict or (told and then is not decision):
            yield Without(reasons, left.verdict, then if told else None)


def _together(trial: _Trial, judgement: Judgement, *, told: bool) -> Without | None:
    """Take the weightiest reasons away one after the other, until the verdict is another."""
    taken: list[str] = []
    reasons: list[Reason] = []
    for rule, spoken in list(by_rule(judgement).items())[:MAX_TRIED]:
        taken.append(rule)
        reasons += spoken
        left, then = trial.judge(trial.without_rules(taken))
        if left.verdict is not judgement.verdict:
            return Without(tuple(reasons), left.verdict, then if told else None)
    return None


def _without_entry(trial: _Trial, entry: ListHit) -> Decision:
    """Return what would have happened, had the entry not been in its list."""
    reports = tuple(
        replace(
            report,
            findings=tuple(
                finding
                for finding in report.findings
                if not (
                    finding.facts.get("list") == entry.list_name and finding.facts.get("entry") == entry.entry[:200]
                )
            ),
        )
        if report.analyzer == ANALYZER
        else report
        for report in trial.evidence.reports
    )
    return trial.judge(Evidence(reports))[1]


def by_rule(judgement: Judgement) -> dict[str, tuple[Reason, ...]]:
    """Return the reasons that speak against the message, by their rule, the weightiest rule first."""
    found: dict[str, tuple[Reason, ...]] = {}
    for reason in judgement.reasons:
        found[reason.rule] = (*found.get(reason.rule, ()), reason)
    weights = {rule: sum(reason.weight for reason in reasons) for rule, reasons in found.items()}
    order = sorted((rule for rule in found if weights[rule] > 0), key=lambda rule: -weights[rule])
    return {rule: found[rule] for rule in order}


def nearest_verdict(judgement: Judgement) -> Distance | None:
    """Return the verdict above the message's own that lacks the fewest points."""
    points = judgement.points
    above = CONVICTIONS if judgement.verdict not in CONVICTIONS else CONVICTIONS[: CONVICTIONS.index(judgement.verdict)]
    found = [Distance(verdict, points.get(verdict, 0), CONVICTION) for verdict in above if points.get(verdict, 0) > 0]
    if judgement.verdict in (Verdict.CLEAN, Verdict.BULK):
        threat = sum(max(0, points.get(verdict, 0)) for verdict in THREATS)
        if threat:
            found.append(Distance(Verdict.SUSPICIOUS, threat, SUSPICION))
    return min(found, key=lambda distance: distance.missing, default=None)


def listed(evidence: Evidence, tenant: UUID) -> Iterator[ListHit]:
    """Yield the entries that acted, as the evidence tells them."""
    for report in evidence.reports:
        if report.analyzer == ANALYZER:
            yield from hits_told(report.findings, tenant)


def without_findings(evidence: Evidence, names: set[str]) -> Evidence:
    return Evidence(
        tuple(
            replace(report, findings=tuple(finding for finding in report.findings if finding.name not in names))
            if report.findings
            else report
            for report in evidence.reports
        )
    )
