"""Messages as sums of rule weights, so that thousands of candidate weights can be tried in seconds.

The rules that match a message do not depend on the weights that are fitted. This module keeps them, and repeats the
arithmetic of `policy/judge.py`: caps, restraints, and rules that join the leading verdict. A fit must judge its
result again by the policy itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.model.outcome import Reason, Verdict
from mailwarden.policy.judge import CONVICTIONS, LEADING, THREATS, judge
from mailwarden.policy.rules import CONVICTION, Policy, Rule, make_policy
from workshop.evaluate.trial import Judged, Source

Weights = list[int]  # by the position of each rule in the policy

_VERDICTS = tuple(dict.fromkeys((*CONVICTIONS, *THREATS)))
_PLACES = {verdict: place for place, verdict in enumerate(_VERDICTS)}
_CONVICTIONS = tuple(_PLACES[verdict] for verdict in CONVICTIONS)
_THREATS = tuple(_PLACES[verdict] for verdict in THREATS)
_LEADING = tuple(_PLACES[verdict] for verdict in LEADING)


class Term(Struct, frozen=True):
    """A rule that matches: its position in the policy, its verdict, how often it counts, and its cap."""

    rule: int
    verdict: int
    times: int
    cap: int


class Restraint(Struct, frozen=True):
    """A rule that restrains these terms."""

    rule: int
    verdict: int
    cap: int
    terms: tuple[int, ...]


class Message(Struct, frozen=True):
    """One message: the rules that match it."""

    source: Source
    good: bool
    forced: bool  # a rule forces quarantine; the sums do not matter
    terms: tuple[Term, ...]
    restraints: tuple[Restraint, ...] = ()
    joining: tuple[Term, ...] = ()

    @property
    def rules(self) -> frozenset[int]:
        terms = (term.rule for term in (*self.terms, *self.joining))
        return frozenset((*terms, *(restraint.rule for restraint in self.restraints)))

    def sums(self, weights: Weights) -> tuple[int, int]:
        """Return the points of the strongest verdict that quarantines, and those of all threats together."""
        points = [0] * len(_VERDICTS)
        values = []
        for term in self.terms:
            weight = weights[term.rule]
            value = weight if term.times == 1 else min(term.times * weight, term.cap)
            values.append(value)
            points[term.verdict] += value
        if self.restraints:
            self._restrain(points, values, weights)
        if self.joining:
            self._join(points, weights)
        return max(points[place] for place in _CONVICTIONS), sum(max(0, points[place]) for place in _THREATS)

    def is_held(self, weights: Weights) -> bool:
        return self.forced or self.sums(weights)[0] >= CONVICTION

    def _restrain(self, points: list[int], values: list[int], weights: Weights) -> None:
        rest = [max(0, value) for value in values]
        for each in self.restraints:
            total = sum(rest[place] for place in each.terms)
            weight = weights[each.rule]
            taken = min(total, -weight if weight or each.cap == CONVICTION else total - each.cap)
            if taken <= 0:
                continue
            points[each.verdict] -= taken
            for place in each.terms:
                given = min(taken, rest[place])
                rest[place] -= given
                taken -= given

    def _join(self, points: list[int], weights: Weights) -> None:
        leading = max(_LEADING, key=points.__getitem__)
        if points[leading] <= 0:
            for term in self.joining:
                points[term.verdict] += weights[term.rule]
            return
        spare = points[leading] - CONVICTION
        for weight in sorted((weights[term.rule] for term in self.joining), reverse=True):
            counted = weight if spare < 0 else max(weight, -spare)
            spare += counted if spare >= 0 else 0
            points[leading] += counted


def messages_of(judged: Iterable[Judged], policy: Policy) -> list[Message]:
    """Return the messages with the rules that match them."""
    apart = [replace(rule, restrains=(), joins_leading=False) for rule in policy.rules]
    plain = make_policy(apart, policy.tags, policy.verdicts)  # each rule is a reason of its own
    places = {rule.id: place for place, rule in enumerate(policy.rules)}
    return [_message(one, judge(one.scanned.evidence, plain).reasons, policy.rules, places) for one in judged]


def _message(one: Judged, reasons: Sequence[Reason], rules: Sequence[Rule], places: Mapping[str, int]) -> Message:
    times: dict[int, int] = defaultdict(int)
    for reason in reasons:
        times[places[reason.rule]] += 1
    found = {place: rules[place] for place in times if rules[place].verdict in _PLACES}
    added = [place for place, rule in found.items() if not rule.restrains and not rule.joins_leading]
    terms = tuple(
        Term(place, _PLACES[found[place].verdict], times[place] if found[place].counts == "each" else 1, rule.cap)
        for place in added
        for rule in (found[place],)
    )
    restraints = [
        (
            sum(times[added[term]] for term in named),
            rule.cap,
            rule.id,
            Restraint(place, _verdict(rule), rule.cap, named),
        )
        for place, rule in found.items()
        if rule.restrains and (named := _named(rule, [rules[each] for each in added]))
    ]
    joining = tuple(Term(place, _verdict(rule), 1, rule.cap) for place, rule in found.items() if rule.joins_leading)
    return Message(
        one.source,
        one.sample.is_ham,
        one.judgement.forces_quarantine,
        terms,
        tuple(each for *_, each in sorted(restraints, key=itemgetter(0, 1, 2))),
        joining,
    )


def _verdict(rule: Rule) -> int:
    return _PLACES[Verdict(rule.verdict)]


def _named(rule: Rule, others: Sequence[Rule]) -> tuple[int, ...]:
    """Return the positions of the rules with a positive weight that this rule restrains."""
    return tuple(place for place, other in enumerate(others) if other.weight > 0 and other.is_restrained_by(rule))
