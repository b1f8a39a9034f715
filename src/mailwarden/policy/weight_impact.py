"""Shows what another weight of a rule would do for one tenant, and proposes weights for one message."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Profile, Tenant
from mailwarden.policy.counterfactual import by_rule
from mailwarden.policy.impact import (
    DAYS,
    JUDGE_SECONDS,
    LEAST_SECONDS,
    MAX_JUDGED,
    MAX_SHOWN,
    MESSAGES_A_TURN,
    ChangedMessage,
    History,
    Sample,
    read_candidates,
    total_of,
)
from mailwarden.policy.judge import RECOGNISED_BULK
from mailwarden.policy.rejudge import Outcome, Side, judge_again, without_lists
from mailwarden.policy.rules import Policy, Rule, bounds_of, for_tenant
from mailwarden.search.count import Count

_NOT_CLEAN = tuple(f"verdict:{verdict}" for verdict in Verdict if verdict not in (Verdict.CLEAN, Verdict.UNKNOWN))
Bounds = tuple[int, int]


class Proposal(Struct, frozen=True):
    """The weight nearest to the present one that changes the result of a message, and that result."""

    weight: int
    verdict: Verdict
    decision: Decision


class TunableRule(Struct, frozen=True):
    """A rule that argues against a message, with its present weight for the tenant."""

    rule: Rule
    points: int  # in this message
    weight: int
    bounds: Bounds
    proposal: Proposal | None = None

    @property
    def is_fixed(self) -> bool:
        return self.bounds[0] == self.bounds[1]


class WeightImpact(Sample, frozen=True):
    """The estimate: messages to which the rule applies, judged with the present weight and with another."""

    touched: int = 0
    changed: int = 0
    delivered: int = 0  # instead of held
    held: int = 0  # instead of delivered
    undetermined: int = 0  # only an engine knows the result
    messages: tuple[ChangedMessage, ...] = ()  # whose verdict or decision changes, newest first
    in_time: bool = True


def weight_of(rule: Rule, weights: Mapping[str, int]) -> int:
    """Return the weight that the rule has for a tenant, within the bounds of the rule."""
    least, most = bounds_of(rule)
    return max(least, min(most, weights.get(rule.id, rule.weight)))


def judged(request: FinishedRequest, policy: Policy, profile: Profile) -> Side | None:
    """Judge and decide a stored message by this policy, or return None if only an engine knows the result."""
    judgement, decision = judge_again(request, policy, without_lists(request.evidence), request.listing, profile)
    return Side(judgement.verdict, decision) if decision else None


def enforced_profile(tenant: Tenant) -> Profile:
    """Return the profile to compare by: `monitor` delivers nearly everything and would show no difference."""
    return Profile.BALANCED if tenant.profile is Profile.MONITOR else tenant.profile


class Tuner:
    """One message and the rules against it, judged with other weights of its tenant."""

    def __init__(self, request: FinishedRequest, policy: Policy, tenant: Tenant) -> None:
        self._request = request
        self._policy = policy
        self._tenant = tenant
        self._profile = enforced_profile(tenant)

    def result(self, rule_id: str = "", weight: int = 0) -> Side | None:
        """Return the result with the present weights of the tenant, one of them changed if a rule is named."""
        weights = {**self._tenant.weights, rule_id: weight} if rule_id else self._tenant.weights
        return judged(self._request, for_tenant(self._policy, weights), self._profile)

    def rules(self, settable: Callable[[Rule], Bounds]) -> tuple[TunableRule, ...]:
        """Return the rules against the message, those that change its result alone first, then by their points.

        `settable` returns the bounds within which the user may set a weight.
        """
        rules_by_id = {rule.id: rule for rule in self._policy.rules}
        present = self.result()
        tunable_rules = []
        for rule_id, reasons in by_rule(self._request.judgement).items():
            if (rule := rules_by_id.get(rule_id)) is not None:
                weight, bounds = weight_of(rule, self._tenant.weights), settable(rule)
                proposal = self._proposal(rule, weight, bounds[0], present) if present else None
                points = sum(reason.weight for reason in reasons)
                tunable_rules.append(TunableRule(rule, points, weight, bounds, proposal))
        return tuple(sorted(tunable_rules, key=_most_useful))

    def _proposal(self, rule: Rule, weight: int, least: int, present: Side) -> Proposal | None:
        """Lower the weight until the message is delivered, or else until its verdict changes."""
        lowest = self.result(rule.id, least) if least < weight else None
        if lowest is None or lowest == present:
            return None
        delivers = lowest.decision is Decision.DELIVER and present.decision is not Decision.DELIVER
        enough, too_much = least, weight  # the weights with and without the effect that are nearest so far
        while too_much - enough > 1:
            middle = (enough + too_much) // 2
            side = self.result(rule.id, middle)
            reached = side is not None and (side.decision is Decision.DELIVER if delivers else side != present)
            enough, too_much = (middle, too_much) if reached else (enough, middle)
        side = self.result(rule.id, enough) or lowest
        return Proposal(enough, side.verdict, side.decision)


def _most_useful(tunable_rule: TunableRule) -> tuple[bool, bool, bool, int]:
    delivers = tunable_rule.proposal is not None and tunable_rule.proposal.decision is Decision.DELIVER
    return not delivers, tunable_rule.proposal is None, tunable_rule.is_fixed, -tunable_rule.points


class WeightEstimator:
    """Estimates how another weight would have affected past messages of a tenant."""

    def __init__(self, history: History, policy: Policy) -> None:
        self._history = history
        self._policy = policy

    async def estimate(self, tenant: Tenant, rule: Rule, weight: int) -> WeightImpact:
        """Judge the messages of 30 days with the present weights and with this weight."""
        began = time.monotonic()
        since = datetime.now(UTC) - timedelta(days=DAYS)
        before = for_tenant(self._policy, tenant.weights)
        after = for_tenant(self._policy, {**tenant.weights, rule.id: weight})
        terms = terms_of_rule(rule, lowered=weight < weight_of(rule, tenant.weights))
        try:
            requests, count = await read_candidates(self._history, Scope.of(tenant.uid), terms, since, MAX_JUDGED)
        except TimeoutError:
            return WeightImpact(since, 0, 0, total_is_exact=False, in_time=False)
        until = max(began + JUDGE_SECONDS, time.monotonic() + LEAST_SECONDS)
        looked_at, outcomes = 0, list[ChangedMessage]()
        for request in requests:
            looked_at += 1
            if applies(rule, request):
                outcomes.append(ChangedMessage(request, _outcome(request, before, after, enforced_profile(tenant))))
            if looked_at % MESSAGES_A_TURN == 0:
                await asyncio.sleep(0)
                if time.monotonic() > until:
                    break
        return _weight_impact_of(since, looked_at, count, outcomes)


def terms_of_rule(rule: Rule, *, lowered: bool) -> tuple[str, ...]:
    """Return the terms of the messages to search for: the tag of the rule, if every match of the rule has it.

    A lower weight changes nothing about a clean message, except for rules that ease others.
    """
    if rule.tag and not rule.restrains:
        return (f"tag:{rule.tag}",)
    return _NOT_CLEAN if lowered and rule.weight > 0 else ()


def applies(rule: Rule, request: FinishedRequest) -> bool:
    """Return whether the message has the first finding of the rule; others are sought when it is judged."""
    needed = rule.needs[0]
    return needed == RECOGNISED_BULK or any(finding.name == needed for _, finding in request.evidence.findings)


def _outcome(request: FinishedRequest, before: Policy, after: Policy, profile: Profile) -> Outcome:
    left, right = judged(request, before, profile), judged(request, after, profile)
    if left is None or right is None:
        verdict, decision = request.judgement.verdict, request.ruling.decision
        return Outcome(verdict, decision, verdict, decision, touched=True, undetermined=True)
    return Outcome(left.verdict, left.decision, right.verdict, right.decision, touched=True)


def _weight_impact_of(
    since: datetime, looked_at: int, count: Count, outcomes: Sequence[ChangedMessage]
) -> WeightImpact:
    changed = [message for message in outcomes if message.outcome.differs]
    return WeightImpact(
        since=since,
        looked_at=looked_at,
        total=total_of(count, looked_at),
        total_is_exact=count.exact,
        touched=len(outcomes),
        changed=len(changed),
        delivered=sum(_goes(message.outcome, to=Decision.DELIVER) for message in changed),
        held=sum(_goes(message.outcome, to=Decision.QUARANTINE) for message in changed),
        undetermined=sum(message.outcome.undetermined for message in outcomes),
        messages=tuple(sorted(changed, key=_delivered_first)[:MAX_SHOWN]),
    )


def _goes(outcome: Outcome, *, to: Decision) -> bool:
    """Return whether the change delivers a message that was held, or holds one that was delivered."""
    other = Decision.QUARANTINE if to is Decision.DELIVER else Decision.DELIVER
    return outcome.decision is other and outcome.decision_after is to


def _delivered_first(message: ChangedMessage) -> bool:
    """Sort by what matters most; the order of time stays within each kind."""
    return message.outcome.decision is message.outcome.decision_after
