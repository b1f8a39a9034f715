"""What would have changed the outcome of a message: reasons taken away, points to the next line, the entry that won.

Pure: the findings behind a reason are taken out of the evidence, and policy judges and decides what is left.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.lists.findings import PROTECTED_SENDER, finding_name
from mailwarden.model.evidence import Evidence
from mailwarden.model.judgement import Judgement, Reason
from mailwarden.model.listing import ListHit
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.policy.judge import CONVICTIONS, THREATS
from mailwarden.policy.retrial import judge_again, without_lists
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
        self._request = request
        self._policy = policy
        self._needs = {rule.id: rule.needs[0] for rule in policy.rules}
        self._rest = without_lists(request.evidence)

    def judge(self, without: Iterable[str] = (), entry: ListHit | None = None) -> tuple[Judgement, Decision | None]:
        """Judge without the findings that these rules need, and without an entry; the decision may be unknown."""
        names = {self._needs[rule] for rule in without if rule in self._needs}
        listing = self._request.listing
        acting = tuple(hit for hit in listing.acting if finding_name(hit) not in names and not _is_same(hit, entry))
        allowed = {hit.value for hit in acting if hit.list_name == "file-hash-allow"}
        left = replace(listing, acting=acting, allowed_files=listing.allowed_files & allowed)
        if PROTECTED_SENDER in names:
            left = replace(left, protected_sender="")
        rest = without_findings(self._rest, names)
        return judge_again(self._request, self._policy, rest, left)


def what_would_change(request: FinishedRequest, policy: Policy) -> Counterfactual:
    policy = for_tenant(policy, request.weights)
    trial = _Trial(request, policy)
    judgement, decision = trial.judge()
    if (judgement.verdict, judgement.points) != (request.judgement.verdict, request.judgement.points):
        return Counterfactual(judgement.verdict, None, rules_changed=True)
    # If the decision differs, the rules about decisions changed since, or only an engine could tell.
    told = decision is not None and decision is request.ruling.decision
    alone = tuple(_alone(trial, judgement, decision, told=told))
    entry = request.ruling.entry
    return Counterfactual(
        verdict=judgement.verdict,
        decision=decision if told else None,
        alone=alone,
        together=None if alone else _together(trial, judgement, told=told),
        nearest=nearest_verdict(judgement),
        entry=entry,
        without_entry=trial.judge(entry=entry)[1] if entry and told else None,
    )


def _alone(trial: _Trial, judgement: Judgement, decision: Decision | None, *, told: bool) -> Iterator[Without]:
    for rule, reasons in list(by_rule(judgement).items())[:MAX_TRIED]:
        left, then = trial.judge((rule,))
        if left.verdict is not judgement.verdict or (told and then not in (None, decision)):
            yield Without(reasons, left.verdict, then if told else None)


def _together(trial: _Trial, judgement: Judgement, *, told: bool) -> Without | None:
    """Take the weightiest reasons away one after the other, until the verdict is another."""
    taken: list[str] = []
    reasons: list[Reason] = []
    for rule, spoken in list(by_rule(judgement).items())[:MAX_TRIED]:
        taken.append(rule)
        reasons += spoken
        left, then = trial.judge(taken)
        if left.verdict is not judgement.verdict:
            return Without(tuple(reasons), left.verdict, then if told else None)
    return None


def _is_same(hit: ListHit, entry: ListHit | None) -> bool:
    """Return whether two hits are of one entry."""
    return entry is not None and (hit.list_name, hit.entry, hit.tenant) == (entry.list_name, entry.entry, entry.tenant)


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


def without_findings(evidence: Evidence, names: set[str]) -> Evidence:
    return Evidence(
        tuple(
            replace(report, findings=tuple(finding for finding in report.findings if finding.name not in names))
            if report.findings
            else report
            for report in evidence.reports
        )
    )
