"""What another policy makes of stored evidence: every message judged by both, and what differs. Pure.

Both sides are judged anew, so that only the policies differ: what was decided then may rest on rules of then.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.model.evidence import Evidence
from mailwarden.model.judgement import Judgement
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import Assignment, Profile
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.retrial import judge_again, without_lists
from mailwarden.policy.rules import Policy
from mailwarden.policy.weights import for_tenant

MAX_RULES = 5  # told of one message; those that differ most


class Stored(Struct, frozen=True):
    """One message as it is kept: its evidence, and whose it was. With its request, the lists act as they did."""

    name: str
    evidence: Evidence
    assignment: Assignment
    request: FinishedRequest | None = None


class Side(Struct, frozen=True):
    verdict: Verdict
    decision: Decision


class RuleChange(Struct, frozen=True):
    """What one rule weighs in a message, before and after; a rule that does not speak weighs 0."""

    rule: str
    before: int
    after: int


class Change(Struct, frozen=True):
    name: str
    before: Side
    after: Side
    rules: tuple[RuleChange, ...]


class Difference(Struct, frozen=True):
    """Counts of all messages by what they are and what happens to them, as (before, after), and what changes."""

    looked_at: int
    verdicts: Mapping[Verdict, tuple[int, int]]
    decisions: Mapping[Decision, tuple[int, int]]
    changes: tuple[Change, ...]
    untold: int = 0  # where a file was cleared, and only an engine could tell what the rest is


class Point(Struct, frozen=True):
    """A policy, and a profile where it is not the tenant's own."""

    policy: Policy
    profile: Profile | None = None


def stored_of(request: FinishedRequest) -> Stored:
    assignment = Assignment(request.tenant, request.assigned_by, request.profile, request.weights)
    return Stored(str(request.ggrid), request.evidence, assignment, request)


def compare(messages: Iterable[Stored], before: Point, after: Point) -> Difference:
    """Judge each message by both and return what differs."""
    verdicts: tuple[Counter[Verdict], Counter[Verdict]] = Counter(), Counter()
    decisions: tuple[Counter[Decision], Counter[Decision]] = Counter(), Counter()
    changes = []
    looked_at = untold = 0
    for message in messages:
        looked_at += 1
        left, right = _judge(message, before), _judge(message, after)
        if left is None or right is None:
            untold += 1
            continue
        sides = [Side(judgement.verdict, decision) for judgement, decision in (left, right)]
        for number, side in enumerate(sides):
            verdicts[number][side.verdict] += 1
            decisions[number][side.decision] += 1
        if sides[0] != sides[1]:
            changes.append(Change(message.name, sides[0], sides[1], _rules_between(left[0], right[0])))
    return Difference(
        looked_at,
        {each: (verdicts[0][each], verdicts[1][each]) for each in Verdict if verdicts[0][each] or verdicts[1][each]},
        {each: (decisions[0][each], decisions[1][each]) for each in Decision if any(side[each] for side in decisions)},
        tuple(changes),
        untold,
    )


def _judge(message: Stored, point: Point) -> tuple[Judgement, Decision] | None:
    policy = for_tenant(point.policy, message.assignment.weights)
    profile = point.profile or message.assignment.profile
    if (request := message.request) is not None:
        judgement, decision = judge_again(request, policy, without_lists(request.evidence), request.listing, profile)
        return (judgement, decision) if decision else None
    judgement = judge(message.evidence, policy)
    return judgement, decide(judgement, replace(message.assignment, profile=profile), policy).decision


def _rules_between(left: Judgement, right: Judgement) -> tuple[RuleChange, ...]:
    """Return the rules that weigh differently, the greatest difference first."""
    before, after = _weights(left), _weights(right)
    found = [RuleChange(rule, before[rule], after[rule]) for rule in before.keys() | after.keys()]
    differing = [each for each in found if each.before != each.after]
    return tuple(sorted(differing, key=lambda each: (-abs(each.after - each.before), each.rule))[:MAX_RULES])


def _weights(judgement: Judgement) -> Counter[str]:
    weights: Counter[str] = Counter()
    for reason in judgement.reasons:
        weights[reason.rule] += reason.weight
    return weights
