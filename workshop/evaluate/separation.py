"""The findings that separate bad from good, and the common rules of false negatives and false positives."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import log2
from statistics import median

from msgspec import Struct

from mailwarden.model.outcome import Verdict
from workshop.evaluate.corpus import HAM, PHISHING, SPAM
from workshop.evaluate.trial import Judged

NOTHING = "nothing weighs"
_NAMED = 3
_SUMS, _RULES = 2, 8


class FindingRow(Struct, frozen=True):
    """The frequency of one finding in each class, and its information about good or bad in bits."""

    name: str
    ham: float
    worst: float
    worst_subset: str
    spam: float
    phishing: float
    gain: float


class Cause(Struct, frozen=True):
    """Messages with a wrong decision and the same strongest rule, and their median score."""

    rule: str
    count: int
    score: float
    subsets: tuple[tuple[str, int], ...]


def separating(judged: Sequence[Judged]) -> list[FindingRow]:
    """Return every finding, the best separating one first; a finding of good mail has a negative gain."""
    sizes: Counter[str] = Counter()
    subset_sizes: Counter[str] = Counter()
    met: dict[str, Counter[str]] = defaultdict(Counter)
    subsets: dict[str, Counter[str]] = defaultdict(Counter)
    for one in judged:
        kind = one.sample.kind
        if kind not in (HAM, SPAM, PHISHING):
            continue
        sizes[kind] += 1
        subset_sizes[one.sample.subset] += 1
        for name in one.finding_names:
            met[name][kind] += 1
            if kind == HAM:
                subsets[name][one.sample.subset] += 1
    rows = []
    for name, counts in met.items():
        worst, subset = max(((n / subset_sizes[key], key) for key, n in subsets[name].items()), default=(0.0, ""))
        good, bad = counts[HAM], counts[SPAM] + counts[PHISHING]
        gain = information(good, sizes[HAM], bad, sizes[SPAM] + sizes[PHISHING])
        ham, spam, phishing = (counts[kind] / sizes[kind] if sizes[kind] else 0.0 for kind in (HAM, SPAM, PHISHING))
        rows.append(FindingRow(name, ham, worst, subset, spam, phishing, gain))
    return sorted(rows, key=lambda row: -row.gain)


def information(good: int, all_good: int, bad: int, all_bad: int) -> float:
    """Return the mutual information of a finding and badness in bits, for equally likely classes."""
    if not all_good or not all_bad:
        return 0.0
    with_good, with_bad = good / all_good / 2, bad / all_bad / 2
    total = 0.0
    for among_good, among_bad in ((with_good, with_bad), (0.5 - with_good, 0.5 - with_bad)):
        for part in (among_good, among_bad):
            if part > 0:
                total += part * log2(part / ((among_good + among_bad) * 0.5))
    return total if with_bad >= with_good else -total


def causes(wrong: Iterable[Judged]) -> list[Cause]:
    """Group messages by their strongest rule, the largest group first."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for one in wrong:
        weights = _weights(one)
        groups[one.scanned.problem or (max(weights, key=lambda rule: weights[rule]) if weights else NOTHING)].append(
            one
        )
    found = [
        Cause(
            rule,
            len(group),
            median(one.score for one in group),
            tuple(Counter(one.sample.subset for one in group).most_common(_NAMED)),
        )
        for rule, group in groups.items()
    ]
    return sorted(found, key=lambda cause: (-cause.count, cause.rule))


def _weights(one: Judged) -> Counter[str]:
    """Return the weight of each rule against this message."""
    weights: Counter[str] = Counter()
    for reason in one.judgement.reasons:
        weights[reason.rule] += reason.weight
    return Counter({rule: weight for rule, weight in weights.items() if weight > 0})


def reasons_of(one: Judged) -> str:
    """Return the strongest rules of this message, with their weights."""
    if one.scanned.problem:
        return one.scanned.problem
    named = [f"{rule} {weight}" for rule, weight in _weights(one).most_common(_NAMED)]
    return ", ".join(named) or NOTHING


def sums_of(one: Judged) -> str:
    """Return the two highest sums of points with their rules, without that of `bulk`, which holds nothing."""
    if one.scanned.problem:
        return one.scanned.problem
    sums: dict[Verdict, Counter[str]] = defaultdict(Counter)
    for reason in one.judgement.reasons:
        if reason.verdict is not Verdict.BULK and reason.weight:
            sums[reason.verdict][reason.rule] += reason.weight
    points = one.judgement.points
    best = sorted(sums, key=lambda verdict: -points.get(verdict, 0))[:_SUMS]
    texts = []
    for verdict in best:
        rules = ", ".join(f"{rule} {weight}" for rule, weight in sums[verdict].most_common(_RULES))
        texts.append(f"{verdict} {points.get(verdict, 0)} ({rules})")
    return "; ".join(texts) or NOTHING
