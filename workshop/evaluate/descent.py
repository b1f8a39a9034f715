"""Fits integer weights by coordinate descent on a smooth maximum over the sources.

The order of rules and steps is fixed and nothing is random, so that the same messages give the same weights.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log, sqrt

from msgspec import Struct

from mailwarden.policy.rules import CONVICTION, SUSPICION
from workshop.evaluate.sums import Message, Weights
from workshop.evaluate.trial import Source
from workshop.evaluate.weights import Range

STEPS = (8, 4, 2)  # points that a weight moves at once
PASSES = 4  # with each step, at most
WIDTH, ATTACK_WIDTH = 8.0, 16.0  # points over which a wrong decision becomes a right one, of good mail and of attacks
SAFE = 8  # good mail should stay so many points below a conviction and below `suspicious`
HAM = 25.0  # a held good message counts as so many missed attacks, as shares of their sources
WARNED = 0.1  # good mail that is `suspicious` counts this part of good mail that is held
SHARP_ATTACKS, SHARP_HAM = 5.0, 40.0  # how much the worst source counts more than the others
NEAR = 0.02  # the price of a distance from the shipped weight
LEAST_GAIN = 1e-6
WORTH = 1e-4  # a change that gains less on left-out sources is not worth a review

Key = tuple[Source, bool]


def loss_of(message: Message, weights: Weights) -> float:
    """Return the loss of one message between 0 (decided right, with some margin) and about 1."""
    strongest, threats = message.sums(weights)
    if message.good:
        return _step((strongest - CONVICTION + SAFE) / WIDTH) + WARNED * _step((threats - SUSPICION + SAFE) / WIDTH)
    return _step((CONVICTION - strongest) / ATTACK_WIDTH)


def _step(distance: float) -> float:
    """Return nearly 0 far below a threshold and nearly 1 far above it."""
    return 1 / (1 + exp(-distance))  # a sum of points is small, so that nothing overflows


class Fit:
    """The state of one fit: the weights, and the loss of each message and source."""

    def __init__(self, messages: Iterable[Message], shipped: Weights, ranges: Sequence[Range]) -> None:
        self.weights = list(shipped)
        self._shipped = shipped
        self._ranges = ranges
        alike = Counter(message for message in messages if not message.forced)  # equal messages are tried once
        self._messages, self._counts = list(alike), list(alike.values())
        self._losses = [loss_of(message, shipped) for message in self._messages]
        self._carriers: dict[int, list[int]] = defaultdict(list)
        self._sizes: dict[Key, int] = defaultdict(int)
        self._totals: dict[Key, float] = defaultdict(float)
        for place, message in enumerate(self._messages):
            key = (message.source, message.good)
            self._sizes[key] += self._counts[place]
            self._totals[key] += self._counts[place] * self._losses[place]
            for rule in message.rules:
                self._carriers[rule].append(place)
        self._value = self._objective(self._totals)

    def run(self) -> Weights:
        """Move weights as long as it helps, and return them."""
        for step in STEPS:
            for _ in range(PASSES):
                if not self._pass(step):
                    break
        return self.weights

    def _pass(self, step: int) -> bool:
        """Move each weight by one step, the one that gains most first; return whether a weight moved."""
        moves = []
        for each in self._ranges:
            for change in (step, -step):
                weight = max(each.least, min(each.most, self.weights[each.rule] + change))
                if weight != self.weights[each.rule] and (gain := self._try(each.rule, weight)) > LEAST_GAIN:
                    moves.append((-gain, each.rule, weight))
        moved = False
        for _, rule, weight in sorted(moves):
            moved |= self._try(rule, weight, keep=True) > LEAST_GAIN
        return moved

    def _try(self, rule: int, weight: int, *, keep: bool = False) -> float:
        """Return what a weight gains; `keep` keeps it if it gains."""
        before = self.weights[rule]
        self.weights[rule] = weight
        totals = dict(self._totals)
        losses = {}
        for place in self._carriers[rule]:
            message = self._messages[place]
            losses[place] = loss_of(message, self.weights)
            totals[message.source, message.good] += self._counts[place] * (losses[place] - self._losses[place])
        objective = self._objective(totals)
        gain = self._value - objective + self._distance(rule, before) - self._distance(rule, weight)
        if keep and gain > LEAST_GAIN:
            self._totals, self._value = totals, objective
            for place, loss in losses.items():
                self._losses[place] = loss
        else:
            self.weights[rule] = before
        return gain

    def _distance(self, rule: int, weight: int) -> float:
        """Return what this rule pays for a distance from the shipped weight."""
        return NEAR * ((weight - self._shipped[rule]) / max(10, abs(self._shipped[rule]))) ** 2

    def _objective(self, totals: dict[Key, float]) -> float:
        return self._worst(totals, SHARP_ATTACKS, good=False) + HAM * self._worst(totals, SHARP_HAM, good=True)

    def _worst(self, totals: dict[Key, float], sharpness: float, *, good: bool) -> float:
        """Return the smooth maximum of the sources' mean losses; small sources count less."""
        part = share = 0.0
        for key, size in self._sizes.items():
            if key[1] is good:
                part += sqrt(size) * exp(sharpness * totals[key] / size)
                share += sqrt(size)
        return log(part / share) / sharpness if share else 0.0


def fit_weights(messages: Iterable[Message], shipped: Weights, ranges: Sequence[Range]) -> Weights:
    return Fit(messages, shipped, ranges).run()


class Contribution(Struct, frozen=True):
    """A rule by its position, and what its new weight gains on sources that it was not fitted to, by corpus."""

    rule: int
    gains: Mapping[str, float]

    @property
    def gain(self) -> float:
        return sum(self.gains.values())

    @property
    def holds(self) -> bool:
        """Return whether the change gains something, and loses in no corpus."""
        return self.gain >= WORTH and all(gain > -LEAST_GAIN for gain in self.gains.values())


def contributions(
    messages: Sequence[Message], shipped: Weights, fitted: Weights, without: Mapping[Source, Weights]
) -> list[Contribution]:
    """Return the gain of each changed weight, the highest first.

    Each source is judged by the weights that were fitted without it, once as they are and once with the shipped weight
    of the rule. The gain is the loss that this takes away, weighed as in a fit.
    """
    sizes: dict[Key, int] = defaultdict(int)
    carriers: dict[int, list[Message]] = defaultdict(list)
    changed = [rule for rule, weight in enumerate(fitted) if weight != shipped[rule]]
    for message in messages:
        sizes[message.source, message.good] += 1
        for rule in message.rules:
            carriers[rule].append(message)
    shares = {good: sum(sqrt(size) for key, size in sizes.items() if key[1] is good) for good in (True, False)}
    found = []
    for rule in changed:
        gains = dict.fromkeys(sorted({corpus for (corpus, _), _ in sizes}), 0.0)
        for message in carriers[rule]:
            weights = without[message.source]
            if message.forced or weights[rule] == shipped[rule]:
                continue
            before = list(weights)
            before[rule] = shipped[rule]
            part = 1 / sqrt(sizes[message.source, message.good]) / shares[message.good] * (HAM if message.good else 1)
            gains[message.source[0]] += part * (loss_of(message, before) - loss_of(message, weights))
        found.append(Contribution(rule, gains))
    return sorted(found, key=lambda each: (-each.gain, each.rule))
