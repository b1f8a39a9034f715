"""Judges a message again without some findings or without a list entry, to say what would change its verdict. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.lists.catalogue import Effect, names_with
from mailwarden.model.evidence import Evidence
from mailwarden.model.listing import ListHit
from mailwarden.model.outcome import Decision, Judgement, Reason, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.policy.judge import CONVICTIONS, THREATS
from mailwarden.policy.list_effects import PROTECTED_SENDER, finding_name
from mailwarden.policy.rejudge import judge_again, without_lists
from mailwarden.policy.rules import CONVICTION, SUSPICION, Policy, for_tenant

MAX_TRIED = 20  # findings that are removed one at a time, the highest weight of their rules first


class Without(Struct, frozen=True):
    """The result without a finding, or several: all rules that depend on it fall together.

    The first of `reasons` states the finding itself if a rule does. The decision is None if only an engine knows it.
    """

    reasons: tuple[Reason, ...]  # those that no longer apply
    verdict: Verdict
    decision: Decision | None
    instead: tuple[Reason, ...] = ()  # those that apply only without the finding


class Distance(Struct, frozen=True):
    """The points of a verdict, and the points that it needs."""

    verdict: Verdict
    points: int
    line: int

    @property
    def missing(self) -> int:
        return self.line - self.points


class Counterfactual(Struct, frozen=True):
    """`alone` has the findings that each change the result; if there are none, `together` has a few that do."""

    verdict: Verdict  # by the current policy
    decision: Decision | None
    rules_changed: bool = False  # since the message was judged
    alone: tuple[Without, ...] = ()
    together: Without | None = None
    nearest: Distance | None = None  # the more severe verdict that lacks the fewest points
    entry: ListHit | None = None
    without_entry: Decision | None = None


class _Trial:
    """One message that is judged again without some of its findings."""

    def __init__(self, request: FinishedRequest, policy: Policy) -> None:
        self._request = request
        self._policy = policy
        self._rules = {rule.id: rule for rule in policy.rules}
        self._evidence_without_lists = without_lists(request.evidence)

    def findings(self, judgement: Judgement) -> list[str]:
        """Return the findings behind the reasons against the message, by the weight of the rules that need them."""
        weights: Counter[str] = Counter()
        for rule_id, reasons in by_rule(judgement).items():
            if (rule := self._rules.get(rule_id)) is not None:
                for name in {*rule.needs, *rule.any_of}:
                    weights[name] += sum(reason.weight for reason in reasons)
        return sorted(weights, key=lambda name: (-weights[name], name))[:MAX_TRIED]

    def without(self, judgement: Judgement, names: Iterable[str], *, decision_known: bool) -> Without:
        """Return the result without these findings, with every rule that falls and every rule that applies instead."""
        gone = frozenset(names)
        left, then = self.judge(gone)
        before, after = (frozenset(reason.rule for reason in compared.reasons) for compared in (judgement, left))
        fallen = [reason for reason in judgement.reasons if reason.rule not in after]
        # A rule about these findings alone states the fact; the others combine it.
        fallen.sort(key=lambda reason: (not gone.issuperset(self._rules[reason.rule].needs), -reason.weight))
        instead = tuple(reason for reason in left.reasons if reason.rule not in before)
        return Without(tuple(fallen), left.verdict, then if decision_known else None, instead)

    def rests_on(self, reason: Reason, names: Iterable[str]) -> bool:
        """Return whether the rule of the reason needs one of the findings."""
        rule = self._rules[reason.rule]
        return not {*rule.needs, *rule.any_of}.isdisjoint(names)

    def judge(
        self, names: frozenset[str] = frozenset(), entry: ListHit | None = None
    ) -> tuple[Judgement, Decision | None]:
        """Judge without these findings and without an entry; the decision may be unknown."""
        listing = self._request.listing
        acting = tuple(hit for hit in listing.acting if finding_name(hit) not in names and not _is_same(hit, entry))
        allowed = {hit.value for hit in acting if hit.list_name in names_with(Effect.CLEARED_FILE)}
        left = replace(listing, acting=acting, allowed_files=listing.allowed_files & allowed)
        if PROTECTED_SENDER in names:
            left = replace(left, protected_sender="")
        remaining_evidence = without_findings(self._evidence_without_lists, names)
        return judge_again(self._request, self._policy, remaining_evidence, left)


def what_would_change(request: FinishedRequest, policy: Policy) -> Counterfactual:
    policy = for_tenant(policy, request.weights)
    trial = _Trial(request, policy)
    judgement, decision = trial.judge()
    if (judgement.verdict, judgement.points) != (request.judgement.verdict, request.judgement.points):
        return Counterfactual(judgement.verdict, None, rules_changed=True)
    # If the decision differs, the policy changed since, or only an engine knows the result.
    decision_known = decision is not None and decision is request.ruling.decision
    alone = tuple(_alone(trial, judgement, decision, decision_known=decision_known))
    entry = request.ruling.entry
    return Counterfactual(
        verdict=judgement.verdict,
        decision=decision if decision_known else None,
        alone=alone,
        together=None if alone else _together(trial, judgement, decision_known=decision_known),
        nearest=nearest_verdict(judgement),
        entry=entry,
        without_entry=trial.judge(entry=entry)[1] if entry and decision_known else None,
    )


def _alone(
    trial: _Trial, judgement: Judgement, decision: Decision | None, *, decision_known: bool
) -> Iterator[Without]:
    """Yield each finding without which the result differs; of several with the same first reason, the narrowest."""
    narrowest: dict[str, Without] = {}
    for name in trial.findings(judgement):
        removal = trial.without(judgement, (name,), decision_known=decision_known)
        differs = removal.verdict is not judgement.verdict or (
            decision_known and removal.decision not in (None, decision)
        )
        if not differs or not removal.reasons:
            continue
        headline = removal.reasons[0].rule
        if headline not in narrowest or len(removal.reasons) < len(narrowest[headline].reasons):
            narrowest[headline] = removal
    yield from narrowest.values()


def _together(trial: _Trial, judgement: Judgement, *, decision_known: bool) -> Without | None:
    """Remove the heaviest finding again and again until the verdict changes, then put back those that do not matter.

    Rules that apply only without an earlier finding are removed as well, and belong to the reasons.
    """
    taken: list[str] = []
    left, replaced = judgement, list[Reason]()
    while left.verdict is judgement.verdict:
        name = next((finding for finding in trial.findings(left) if finding not in taken), None)
        if name is None or len(taken) >= MAX_TRIED:
            return None
        taken.append(name)
        left = trial.judge(frozenset(taken))[0]
        known_rules = {reason.rule for reason in (*judgement.reasons, *replaced)}
        replaced += [reason for reason in left.reasons if reason.rule not in known_rules]
    for name in taken[:-1]:
        fewer = [finding for finding in taken if finding != name]
        if trial.judge(frozenset(fewer))[0].verdict is not judgement.verdict:
            taken = fewer
    removal = trial.without(judgement, taken, decision_known=decision_known)
    applying = {reason.rule for reason in removal.instead}
    gone = [reason for reason in replaced if reason.rule not in applying and trial.rests_on(reason, taken)]
    return replace(removal, reasons=(*removal.reasons, *gone))


def _is_same(hit: ListHit, entry: ListHit | None) -> bool:
    """Return whether two hits are of the same entry."""
    return entry is not None and (hit.list_name, hit.entry, hit.tenant) == (entry.list_name, entry.entry, entry.tenant)


def by_rule(judgement: Judgement) -> dict[str, tuple[Reason, ...]]:
    """Return the reasons against the message by rule, the highest weight first."""
    reasons_by_rule: dict[str, tuple[Reason, ...]] = {}
    for reason in judgement.reasons:
        reasons_by_rule[reason.rule] = (*reasons_by_rule.get(reason.rule, ()), reason)
    weights = {rule: sum(reason.weight for reason in reasons) for rule, reasons in reasons_by_rule.items()}
    order = sorted((rule for rule in reasons_by_rule if weights[rule] > 0), key=lambda rule: -weights[rule])
    return {rule: reasons_by_rule[rule] for rule in order}


def nearest_verdict(judgement: Judgement) -> Distance | None:
    """Return the more severe verdict that lacks the fewest points."""
    points = judgement.points
    above = CONVICTIONS if judgement.verdict not in CONVICTIONS else CONVICTIONS[: CONVICTIONS.index(judgement.verdict)]
    distances = [
        Distance(verdict, points.get(verdict, 0), CONVICTION) for verdict in above if points.get(verdict, 0) > 0
    ]
    if judgement.verdict in (Verdict.CLEAN, Verdict.BULK):
        threat = sum(max(0, points.get(verdict, 0)) for verdict in THREATS)
        if threat:
            distances.append(Distance(Verdict.SUSPICIOUS, threat, SUSPICION))
    return min(distances, key=lambda distance: distance.missing, default=None)


def without_findings(evidence: Evidence, names: AbstractSet[str]) -> Evidence:
    return Evidence(
        tuple(
            replace(report, findings=tuple(finding for finding in report.findings if finding.name not in names))
            if report.findings
            else report
            for report in evidence.reports
        )
    )
