"""One score per message for variable thresholds, and the threshold of a false positive rate."""

from collections.abc import Iterable, Sequence
from math import inf

from mailwarden.model.outcome import Judgement, Verdict
from mailwarden.policy.judge import CONVICTIONS
from mailwarden.policy.rules import CONVICTION

# Points for other verdicts than the strongest count by this fraction, to break ties.
SHARE = 0.25
_COUNTED = (*CONVICTIONS, Verdict.SUSPICIOUS)
_JUST_BELOW = CONVICTION - 0.01


def score_of(judgement: Judgement) -> float:
    """Return the points of the strongest verdict that quarantines, and a fraction of those of the others.

    100 and more means exactly that the shipped policy quarantines: the fractions alone never reach it, and a rule that
    forces quarantine is never below it. Bulk counts for nothing, because newsletters are delivered.
    """
    points = judgement.points
    best = max((points.get(verdict, 0) for verdict in CONVICTIONS), default=0)
    others = sum(max(0, points.get(verdict, 0)) for verdict in _COUNTED) - max(0, best)
    score = best + SHARE * others
    if best >= CONVICTION or judgement.forces_quarantine:
        return max(score, float(CONVICTION))
    return min(score, _JUST_BELOW)


def threshold_at(rate: float, ham: Iterable[float]) -> float:
    """Return the score that a message must EXCEED, so that at most `rate` of the ham does.

    Equal scores belong together: if the next ham would exceed the rate, all ham with its score passes.
    """
    ordered = sorted(ham, reverse=True)
    allowed = int(rate * len(ordered))
    return ordered[allowed] if allowed < len(ordered) else -inf


def share_above(threshold: float, scores: Sequence[float]) -> float | None:
    """Return the fraction of the scores above the threshold, or None if there are none."""
    return sum(score > threshold for score in scores) / len(scores) if scores else None


def curve(ham: Sequence[float], bad: Sequence[float]) -> list[tuple[float, float]]:
    """Return the points of the ROC curve, false positive rate and detection rate, from the strictest threshold on."""
    if not ham or not bad:
        return []
    good, caught = sorted(ham, reverse=True), sorted(bad, reverse=True)
    points = [(0.0, 0.0)]
    passed_good = passed_bad = 0
    for level in sorted({*good, *caught}, reverse=True):
        while passed_good < len(good) and good[passed_good] >= level:
            passed_good += 1
        while passed_bad < len(caught) and caught[passed_bad] >= level:
            passed_bad += 1
        points.append((passed_good / len(good), passed_bad / len(caught)))
    return points
