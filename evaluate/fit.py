"""`make fit`: fits the weights of rules to stored findings, and prints what changed and what it gains on other sources.

Nothing is scanned: `make evaluate` stores the findings. Rule files change only with `--write`.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from msgspec import Struct

from evaluate.baselines import baseline_table
from evaluate.corpus import Corpus, Split
from evaluate.descent import Contribution, contributions, fit_weights
from evaluate.records import Run, Scanned, newest
from evaluate.shipped import (
    ENOUGH,
    LeftOut,
    attacks_of,
    compare_sources,
    counted,
    ham_of,
    held,
    left_out_lines,
    suspicious,
)
from evaluate.sums import Message, Weights, messages_of
from evaluate.trial import Judged, Source, try_all
from evaluate.weights import Range, free_rules, write_weights
from mailwarden.access.tenants import MAX_WEIGHTS
from mailwarden.policy.rules import FOLDER, Policy, load_policy, reweigh

RESULTS, UNPACKED = Path("run/evaluate"), Path("run/corpus")
_WORK: list["Work"] = []  # in each process


class Work(Struct, frozen=True):
    """The messages of a fit, and the policy that is fitted."""

    policy: Policy
    judged: Sequence[Judged]
    messages: Sequence[Message]

    @property
    def shipped(self) -> Weights:
        return [rule.weight for rule in self.policy.rules]

    @property
    def sources(self) -> list[Source]:
        return sorted({message.source for message in self.messages})

    @property
    def left_out_together(self) -> list[frozenset[Source]]:
        """Return the sources that are left out at once: each large one, and the small ones of a corpus together."""
        sizes = Counter(message.source for message in self.messages)
        groups: dict[Source, set[Source]] = defaultdict(set)
        for source in self.sources:
            groups[source if sizes[source] >= ENOUGH else (source[0], "")].add(source)
        return [frozenset(group) for group in groups.values()]

    def fit(self, left_out: frozenset[Source] = frozenset(), only: frozenset[int] | None = None) -> Weights:
        """Fit the weights to all sources but some; `only` limits the rules that may change."""
        messages = [message for message in self.messages if message.source not in left_out]
        ranges = [each for each in free_rules(self.policy.rules, messages) if only is None or each.rule in only]
        return fit_weights(messages, self.shipped, ranges)

    def named(self, weights: Weights) -> dict[str, int]:
        """Return the weights that differ from the shipped ones, by rule."""
        pairs = zip(self.policy.rules, weights, strict=True)
        return {rule.id: weight for rule, weight in pairs if weight != rule.weight}

    def judge(self, some: Iterable[Judged], weights: Weights) -> list[Judged]:
        """Judge by the policy itself, with these weights."""
        return try_all([one.scanned for one in some], reweigh(self.policy, self.named(weights)))


class Result(Struct, frozen=True):
    """A fit: the weights for use, and those that were fitted without each source."""

    weights: Weights
    without: Mapping[Source, Weights]
    gains: Sequence[Contribution]
    dropped: Sequence[Contribution]


def make_work(records: Iterable[Scanned], policy: Policy) -> Work:
    judged = counted(try_all(records, policy))
    return Work(policy, judged, messages_of(judged, policy))


def fit(work: Work) -> Result:
    """Fit all rules, drop the changes that do not hold on left-out sources, and fit the others again."""
    every, without = _fit_each(work, None)
    gains = contributions(work.messages, work.shipped, every, without)
    kept = frozenset(each.rule for each in gains if each.holds)
    again, without_again = _fit_each(work, kept)
    last = contributions(work.messages, work.shipped, again, without_again)
    lost = [each for each in last if not each.holds]  # they held only beside changes that were dropped
    for weights in (again, *without_again.values()):
        for each in lost:
            weights[each.rule] = work.shipped[each.rule]
    dropped = [*(each for each in gains if each.rule not in kept), *lost]
    return Result(again, without_again, [each for each in last if each.holds], dropped)


def _fit_each(work: Work, only: frozenset[int] | None) -> tuple[Weights, dict[Source, Weights]]:
    """Fit to all sources, and without each of them."""
    groups = work.left_out_together
    context = multiprocessing.get_context("fork")  # the messages are shared, not copied
    with context.Pool(os.cpu_count(), _WORK.append, (work,)) as pool:
        every, *rest = pool.map(partial(_fit_one, only=only), [frozenset[Source](), *groups], 1)
    return every, {source: weights for group, weights in zip(groups, rest, strict=True) for source in group}


def _fit_one(left_out: frozenset[Source], only: frozenset[int] | None) -> Weights:
    return _WORK[0].fit(left_out, only)


def leave_out(work: Work, without: Mapping[Source, Weights]) -> tuple[list[LeftOut], list[LeftOut], list[Judged]]:
    """Judge each source by the weights that were fitted without it; return sources of ham, of attacks, and all mail."""
    everything: list[Judged] = []

    def judge_again(source: Source, own: Sequence[Judged]) -> Sequence[Judged]:
        again = work.judge(own, without[source])
        everything.extend(again)
        return again

    ham, attacks = compare_sources(work.judged, judge_again)
    return ham, attacks, everything


def report(work: Work, result: Result) -> Iterator[str]:
    """Yield what changed and why, and what it does on the fitted and on left-out sources."""
    yield f"{len(work.messages):,} messages of {len(work.sources)} sources"
    free = free_rules(work.policy.rules, work.messages)
    yield f"{len(work.policy.rules)} rules, {len(free)} can be fitted; {len(result.dropped)} changes are dropped"
    yield from _changes(work, result, free)
    ham, attacks, left_out = leave_out(work, result.without)
    yield "\nEach source left out (held)"
    yield from left_out_lines(ham, attacks)
    yield f"\n{'':34}{'ham held':>22}{'ham suspicious':>22}{'attacks held':>24}"
    rows = {"as shipped": list(work.judged), "fitted to all sources": work.judge(work.judged, result.weights)}
    for name, some in (rows | {"fitted, each source left out": left_out}).items():
        for corpus in sorted({one.sample.corpus for one in some}):
            yield _row(f"{corpus}, {name}", [one for one in some if one.sample.corpus == corpus])
        yield _row(f"all, {name}", some)
    scores = {(one.sample.corpus, one.sample.path): one.score for one in left_out}
    fitted = [scores[one.sample.corpus, one.sample.path] for one in work.judged]
    shipped = [one.score for one in work.judged]
    yield from baseline_table(work.judged, {"sums as shipped": shipped, "fitted sums, left out": fitted})


def _row(name: str, some: Sequence[Judged]) -> str:
    shares = held(ham_of(some)), suspicious(ham_of(some)), held(attacks_of(some))
    return f"{name:44}" + "".join(f"{share.percent:>8} {share.interval_text:14}" for share in shares)


def _changes(work: Work, result: Result, free: Sequence[Range]) -> Iterator[str]:
    ranges = {each.rule: each for each in free}
    head = f"{'shipped':>8}{'fitted':>7}{'range':>10}{'ham':>7}{'sources':>8}{'attacks':>8}{'sources':>8}{'gain':>8}"
    head += "".join(f"{corpus:>15}" for corpus in sorted({corpus for corpus, _ in work.sources}))
    yield f"\n{'Changed weights':40}{head}"
    for each in result.gains:
        rule, span = work.policy.rules[each.rule], ranges[each.rule]
        carriers = [message for message in work.messages if each.rule in message.rules]
        cells = ""
        for good in (True, False):
            some = [message.source for message in carriers if message.good is good]
            cells += f"{len(some):>{7 if good else 8}}{len(set(some)):>8}"
        points = f"{rule.weight:>8}{result.weights[each.rule]:>7}{f'{span.least}..{span.most}':>10}"
        gains = "".join(f"{1000 * gain:>15.2f}" for gain in each.gains.values())
        yield f"{rule.id:40}{points}{cells}{1000 * each.gain:>8.2f}{gains}"
    yield "gain: how much less is lost on sources that the weight was not fitted to, in thousandths; more is better"
    if result.dropped:
        names = ", ".join(work.policy.rules[each.rule].id for each in result.dropped)
        yield f"dropped, because they gain too little on left-out sources or lose in a corpus: {names}"


def verify(work: Work, weights: Weights) -> None:
    """Stop if the sums decide otherwise than the policy does."""
    again = work.judge(work.judged, weights)
    wrong = [
        one.sample.path
        for one, message in zip(again, work.messages, strict=True)
        if one.held != message.is_held(weights) and not one.crashed
    ]
    if wrong:
        raise SystemExit(f"evaluate/sums.py and the policy decide otherwise about {len(wrong)} messages: {wrong[:3]}")


def read_records(arguments: argparse.Namespace) -> list[Scanned]:
    """Return the stored findings of each corpus."""
    found: list[Scanned] = []
    for folder in arguments.corpus:
        corpus = Corpus(folder, UNPACKED)
        split = arguments.split if corpus.is_split else "all"
        names = {sample.path for sample in corpus.samples(cast("Split", arguments.split))}
        found += (one for one in newest(arguments.results, Run(corpus.name, split)).read() if one.sample.path in names)
    return found


def main(words: Sequence[str] | None = None) -> int:
    arguments = _read_arguments(words)
    began = time.monotonic()
    work = make_work(read_records(arguments), load_policy())
    verify(work, work.shipped)
    result = fit(work)
    verify(work, result.weights)
    for line in report(work, result):
        print(line, flush=True)
    changed = work.named(result.weights)
    if arguments.settings:
        chosen = sorted(work.policy.rules[each.rule].id for each in result.gains[:MAX_WEIGHTS])  # the highest gains
        print("\nmailwarden tenants weigh TENANT " + " ".join(f"--set {name}={changed[name]}" for name in chosen))
    if arguments.write:
        write_weights(FOLDER / "rules", changed)
        print(
            f"{len(changed)} weights are written to {FOLDER / 'rules'}: review them with git diff, run make docs test"
        )
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


def _read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m evaluate.fit", description=__doc__)
    add = parser.add_argument
    add("--corpus", type=Path, action="append", required=True, help="folder with MANIFEST.csv; repeatable")
    add("--split", choices=("dev", "test"), default="dev", help="of a corpus that has splits (%(default)s)")
    add("--results", type=Path, default=RESULTS, help="where `make evaluate` stored the findings (%(default)s)")
    add("--settings", action="store_true", help="also print the command that gives a tenant the fitted weights")
    add("--write", action="store_true", help="write the fitted weights to the rule files")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
