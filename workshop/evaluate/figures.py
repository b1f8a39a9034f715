"""The figures: the detection rate of each class at a false positive rate, and the worst source of ham."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from workshop.evaluate.corpus import BEC_QR, FIXTURE, HAM, MALFORMED, MALWARE, PHISHING, SPAM
from workshop.evaluate.scores import share_above, threshold_at
from workshop.evaluate.trial import Judged

RATES = (0.001, 0.005, 0.01)
GOAL_RATE = 0.005
CAUGHT = (PHISHING, SPAM, BEC_QR, MALWARE)

Score = Callable[[Judged], float | None]


class Worst(Struct, frozen=True):
    """The source of ham with the highest false positive rate."""

    subset: str = ""
    wrong: int = 0
    size: int = 0

    @property
    def rate(self) -> float:
        return self.wrong / self.size if self.size else 0.0


class Figures(Struct, frozen=True):
    """The result of one threshold; a class that the split lacks is None."""

    threshold: float
    caught: dict[str, float | None]
    false_positives: float | None
    with_fixtures: float | None
    worst: Worst


def our_score(one: Judged) -> float | None:
    return one.score


def rspamd_score(one: Judged) -> float | None:
    return one.scanned.rspamd


def spamassassin_score(one: Judged) -> float | None:
    return one.scanned.spamassassin


def figures_at(rate: float, judged: Sequence[Judged], score: Score = our_score, *, fixtures: bool = False) -> Figures:
    """Return the figures at the threshold with a false positive rate of at most `rate`."""
    return figures_above(_threshold(rate, judged, score, fixtures=fixtures), judged, score)


def figures_above(threshold: float, judged: Sequence[Judged], score: Score = our_score) -> Figures:
    by_kind = scores_by(judged, lambda one: one.sample.kind, score)
    ham = by_kind.get(HAM, [])
    return Figures(
        threshold=threshold,
        caught={kind: share_above(threshold, by_kind.get(kind, [])) for kind in CAUGHT},
        false_positives=share_above(threshold, ham),
        with_fixtures=share_above(threshold, [*ham, *by_kind.get(FIXTURE, [])]),
        worst=worst_ham(threshold, judged, score),
    )


def figures_shipped(judged: Sequence[Judged]) -> Figures:
    """Return the figures of the shipped decision: the messages that the balanced profile quarantines."""
    return figures_above(0.5, judged, lambda one: float(one.held))


def worst_ham(threshold: float, judged: Sequence[Judged], score: Score = our_score) -> Worst:
    """Return the worst source of ham, without fixtures."""
    subsets = scores_by((one for one in judged if one.sample.kind == HAM), lambda one: one.sample.subset, score)
    worst = [Worst(name, sum(each > threshold for each in scores), len(scores)) for name, scores in subsets.items()]
    return max(worst, key=lambda each: (each.rate, each.wrong), default=Worst())


def scores_by(judged: Iterable[Judged], key: Callable[[Judged], str], score: Score) -> Mapping[str, list[float]]:
    """Return the scores by key; a message without a score counts as the most harmless."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in judged:
        value = score(one)
        found[key(one)].append(float("-inf") if value is None else value)
    return found


def is_measured(judged: Iterable[Judged], score: Score) -> bool:
    """Return whether this score was measured."""
    return any(score(one) is not None for one in judged if one.sample.kind != MALFORMED)


def _threshold(rate: float, judged: Sequence[Judged], score: Score, *, fixtures: bool) -> float:
    kinds = {HAM, FIXTURE} if fixtures else {HAM}
    by_kind = scores_by((one for one in judged if one.sample.kind in kinds), lambda _: HAM, score)
    return threshold_at(rate, by_kind.get(HAM, []))
