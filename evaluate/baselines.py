"""Two classifiers on the same findings and rules, beside the sums: they show what sums that a person can check cost.

A logistic regression gives each finding and each rule any weight; boosted trees also use combinations. Both judge a
source once without having seen it, and once after training with all sources: the second is what weights could reach at
most on these messages. They are plain Python, deterministic, and no part of the product.
"""

import multiprocessing
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import exp

from msgspec import Struct

from evaluate.scores import share_above, threshold_at
from evaluate.shipped import Share, attacks_of, ham_of
from evaluate.trial import Judged, Source

FOLDS = 8  # sources are left out in so many groups
ALLOWED = 0.005  # good mail that may be held
EPOCHS, RATE, SMALL = 40, 0.3, 1e-4  # of the regression: passes, step, and the price of weights
ROUNDS, SHRINK, DEPTH, LEAF, STEADY = 80, 0.3, 2, 10, 1.0  # of the trees

Row = tuple[int, ...]  # the findings and the rules of one message
Model = Callable[[Row], float]
Trainer = Callable[[Sequence[Row], Sequence[bool]], Model]
Case = tuple[frozenset[Source], frozenset[Source]]  # sources without which a model is trained, and those it judges


class Table(Struct, frozen=True):
    """The findings of each message, whether it is an attack, and its source."""

    rows: Sequence[Row]
    bad: Sequence[bool]
    sources: Sequence[Source]


_TABLE: list[Table] = []  # in each process


class Leaf(Struct, frozen=True):
    value: float


class Branch(Struct, frozen=True):
    """A tree: with the finding, and without it."""

    finding: int
    present: "Branch | Leaf"
    absent: "Branch | Leaf"


def train_logistic(rows: Sequence[Row], bad: Sequence[bool]) -> Model:
    """Return a logistic regression with weights kept small; good and bad mail count the same (AdaGrad)."""
    weights: dict[int, float] = defaultdict(float)
    squares: dict[int, float] = defaultdict(lambda: 1e-6)
    shares = _balance(bad)
    for _ in range(EPOCHS):
        for row, label in zip(rows, bad, strict=True):
            error = shares[label] * (_logistic(sum(weights[each] for each in (*row, -1))) - label)
            for each in (*row, -1):
                slope = error + SMALL * weights[each]
                squares[each] += slope * slope
                weights[each] -= RATE * slope / squares[each] ** 0.5
    known = dict(weights)
    return lambda row: sum(known.get(each, 0.0) for each in (*row, -1))


def train_trees(rows: Sequence[Row], bad: Sequence[bool]) -> Model:
    """Return boosted trees (Newton steps on the logistic loss)."""
    shares = _balance(bad)
    sets = [frozenset(row) for row in rows]
    scores = [0.0] * len(rows)
    trees: list[Branch | Leaf] = []
    for _ in range(ROUNDS):
        chances = [_logistic(score) for score in scores]
        slopes = [shares[label] * (label - chance) for label, chance in zip(bad, chances, strict=True)]
        bends = [shares[label] * chance * (1 - chance) for label, chance in zip(bad, chances, strict=True)]
        tree = _grow(range(len(rows)), rows, slopes, bends, DEPTH)
        trees.append(tree)
        scores = [score + _value(tree, each) for score, each in zip(scores, sets, strict=True)]
    return lambda row: sum(_value(tree, frozenset(row)) for tree in trees)


def _grow(
    places: Sequence[int], rows: Sequence[Row], slopes: Sequence[float], bends: Sequence[float], depth: int
) -> Branch | Leaf:
    slope, bend = sum(slopes[place] for place in places), sum(bends[place] for place in places)
    leaf = Leaf(SHRINK * slope / (bend + STEADY))
    if not depth:
        return leaf
    with_slope: dict[int, float] = defaultdict(float)
    with_bend: dict[int, float] = defaultdict(float)
    sizes: dict[int, int] = defaultdict(int)
    for place in places:
        for finding in rows[place]:
            with_slope[finding] += slopes[place]
            with_bend[finding] += bends[place]
            sizes[finding] += 1
    gains = [
        (_gain(with_slope[each], with_bend[each]) + _gain(slope - with_slope[each], bend - with_bend[each]), -each)
        for each, size in sizes.items()
        if LEAF <= size <= len(places) - LEAF
    ]
    best, finding = max(gains, default=(0.0, 0))
    if best <= _gain(slope, bend) + 1e-9:
        return leaf
    present = [place for place in places if -finding in rows[place]]
    absent = [place for place in places if -finding not in rows[place]]
    return Branch(
        -finding, _grow(present, rows, slopes, bends, depth - 1), _grow(absent, rows, slopes, bends, depth - 1)
    )


def _gain(slope: float, bend: float) -> float:
    return slope * slope / (bend + STEADY)


def _value(tree: Branch | Leaf, row: frozenset[int]) -> float:
    while isinstance(tree, Branch):
        tree = tree.present if tree.finding in row else tree.absent
    return tree.value


def _logistic(score: float) -> float:
    return 1 / (1 + exp(-max(-30.0, min(30.0, score))))


def _balance(bad: Sequence[bool]) -> dict[bool, float]:
    """Return the share by which good and bad messages count the same."""
    attacks = sum(bad)
    return {True: len(bad) / (2 * max(1, attacks)), False: len(bad) / (2 * max(1, len(bad) - attacks))}


def left_out_scores(judged: Sequence[Judged], train: Trainer) -> list[float]:
    """Return the score of each message by a model that was trained without its source."""
    return _scores(judged, train, [(fold, fold) for fold in _folds(judged)])


def seen_scores(judged: Sequence[Judged], train: Trainer) -> list[float]:
    """Return the score of each message by a model that was trained with all messages, and with this one."""
    return _scores(judged, train, [(frozenset(), frozenset(one.source for one in judged))])


def _scores(judged: Sequence[Judged], train: Trainer, cases: Sequence[Case]) -> list[float]:
    names = [frozenset((*one.finding_names, *(reason.rule for reason in one.judgement.reasons))) for one in judged]
    places = {name: place for place, name in enumerate(sorted(frozenset[str]().union(*names)))}
    rows = [tuple(sorted(places[name] for name in some)) for some in names]
    table = Table(rows, [one.sample.is_attack for one in judged], [one.source for one in judged])
    scores = [0.0] * len(judged)
    context = multiprocessing.get_context("fork")  # the table is shared, not copied
    with context.Pool(min(os.cpu_count() or 1, len(cases)), _TABLE.append, (table,)) as pool:
        for found in pool.imap_unordered(partial(_judge_case, train=train), cases):
            for place, score in found.items():
                scores[place] = score
    return scores


def _judge_case(case: Case, train: Trainer) -> dict[int, float]:
    """Train without some sources, and return the scores of those that are judged."""
    table = _TABLE[-1]
    inside = [place for place, source in enumerate(table.sources) if source not in case[0]]
    model = train([table.rows[place] for place in inside], [table.bad[place] for place in inside])
    return {place: model(table.rows[place]) for place, source in enumerate(table.sources) if source in case[1]}


def _folds(judged: Sequence[Judged]) -> list[frozenset[Source]]:
    """Divide the sources into groups of similar size, the largest source first."""
    sizes: dict[Source, int] = defaultdict(int)
    for one in judged:
        sizes[one.source] += 1
    folds: list[set[Source]] = [set() for _ in range(min(FOLDS, len(sizes)))]
    for source in sorted(sizes, key=lambda each: (-sizes[each], each)):
        min(folds, key=lambda fold: sum(sizes[each] for each in fold)).add(source)
    return [frozenset(fold) for fold in folds]


def baseline_table(judged: Sequence[Judged], sums: dict[str, Sequence[float]]) -> Iterator[str]:
    """Yield the attacks that each score holds where it holds 0.5 % of the good mail; `sums` are scores of policies."""
    scores = {
        **sums,
        "logistic regression, left out": left_out_scores(judged, train_logistic),
        "boosted trees, left out": left_out_scores(judged, train_trees),
        "logistic regression, all seen": seen_scores(judged, train_logistic),
        "boosted trees, all seen": seen_scores(judged, train_trees),
    }
    yield f"\nAttacks held where {100 * ALLOWED:g} % of the good mail of all sources is held"
    corpora = sorted({one.sample.corpus for one in judged})
    yield f"{'':34}" + "".join(f"{name:>26}" for name in ("all", *corpora))
    for name, some in scores.items():
        by_message = dict(zip((id(one) for one in judged), some, strict=True))
        threshold = threshold_at(ALLOWED, [by_message[id(one)] for one in ham_of(judged)])
        cells = ""
        for corpus in ("", *corpora):
            part = [by_message[id(one)] for one in attacks_of(judged) if corpus in ("", one.sample.corpus)]
            share = Share(round((share_above(threshold, part) or 0) * len(part)), len(part))
            cells += f"{f'{share.percent} ({share.interval_text})':>26}"
        yield f"{name:34}{cells}"
