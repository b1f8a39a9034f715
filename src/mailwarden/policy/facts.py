"""Condenses a judgement into a few facts: the rules of one topic are one fact, with their points summed."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from mailwarden.model.outcome import Judgement, Reason, Verdict
from mailwarden.policy.judge import carriers_of
from mailwarden.policy.rules import Policy, Rule

MOST = 7  # facts of an explanation
MOST_CONTEXT = 3  # of them facts without points


class Fact(Struct, frozen=True):
    """The rules of one topic that argue for one verdict, the strongest first."""

    topic: str
    reasons: tuple[Reason, ...]

    @property
    def about(self) -> str:
        return self.topic.partition(".")[0]

    @property
    def headline(self) -> Reason:
        return self.reasons[0]

    @property
    def verdict(self) -> Verdict:
        return self.headline.verdict

    @property
    def sentence(self) -> str:
        return self.headline.summary

    @property
    def points(self) -> int:
        return sum(reason.weight for reason in self.reasons)


class Sum(Struct, frozen=True):
    """The points of one verdict, and how many of them are in facts that are not shown."""

    verdict: Verdict
    points: int
    unshown: int = 0
    unshown_points: int = 0


class Explanation(Struct, frozen=True):
    """The facts behind a verdict, and the sums that they add up to."""

    facts: tuple[Fact, ...]
    sums: tuple[Sum, ...]

    @property
    def against(self) -> tuple[Fact, ...]:
        """The facts with points for the verdict."""
        return tuple(fact for fact in self.facts if fact.points > 0)


def explain(judgement: Judgement, policy: Policy) -> Explanation:
    """Return at most MOST facts: those of the verdict by their points, then facts that show who the sender is.

    A clean message has no facts against it that count; those of its highest sum are shown.
    """
    rules = {rule.id: rule for rule in policy.rules}
    verdicts = _explained(judgement)
    facts = [fact for fact in _facts_of(judgement.reasons, rules) if fact.verdict in verdicts and fact.points]
    context = _context_of(judgement.reasons, rules, {fact.topic for fact in facts})[:MOST_CONTEXT]
    strongest = sorted(facts, key=lambda fact: -abs(fact.points))[: MOST - len(context)]
    shown = sorted(strongest, key=lambda fact: -fact.points)
    unshown = [fact for fact in facts if fact not in strongest]
    return Explanation(
        facts=(*shown, *context),
        sums=tuple(_sum(verdict, judgement.points, unshown) for verdict in verdicts),
    )


def _explained(judgement: Judgement) -> tuple[Verdict, ...]:
    """Return the verdicts whose points are explained; without a conviction it is that with most points."""
    points = {verdict: judgement.points.get(verdict, 0) for verdict in Verdict}
    if judgement.verdict not in (Verdict.CLEAN, Verdict.UNKNOWN):
        return tuple(verdict for verdict in carriers_of(judgement.verdict) if points[verdict] > 0)
    highest = max(points, key=lambda verdict: points[verdict])
    return (highest,) if points[highest] > 0 else ()


def _facts_of(reasons: Iterable[Reason], rules: Mapping[str, Rule]) -> list[Fact]:
    """Group reasons by topic and verdict; a reason of a rule that is no more is a fact of its own."""
    topics: dict[tuple[str, Verdict], list[Reason]] = {}
    for reason in reasons:
        topic = rules[reason.rule].topic if reason.rule in rules else f"message.{reason.analyzer}"
        topics.setdefault((topic, reason.verdict), []).append(reason)
    return [Fact(topic, tuple(sorted(those, key=_strongest))) for (topic, _), those in topics.items()]


def _context_of(reasons: Iterable[Reason], rules: Mapping[str, Rule], shown: set[str]) -> list[Fact]:
    """Return facts without points that an explanation shows anyway, unless it has their topic already."""
    context = [
        reason for reason in reasons if reason.rule in rules and rules[reason.rule].context and not reason.weight
    ]
    return [fact for fact in _facts_of(context, rules) if fact.topic not in shown]


def _sum(verdict: Verdict, points: Mapping[str, int], unshown: Iterable[Fact]) -> Sum:
    those = [fact for fact in unshown if fact.verdict is verdict]
    return Sum(verdict, points.get(verdict, 0), len(those), sum(fact.points for fact in those))


def _strongest(reason: Reason) -> tuple[int, str, str]:
    return -reason.weight, reason.rule, reason.summary
