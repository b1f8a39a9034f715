"""The headline: held and suspicious messages of the shipped policy, by group and language, with 95 % intervals."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import sqrt

from msgspec import Struct

from mailwarden.model.outcome import Verdict
from mailwarden.policy.rules import Policy
from workshop.evaluate.corpus import CLASSES, MALFORMED
from workshop.evaluate.scores import share_above, threshold_at
from workshop.evaluate.trial import Judged, Source, try_all

Z_95 = 1.959964
FEW = 5  # in a blind run, groups smaller than this are counted together
ENOUGH = 20  # messages that a source needs to be called the worst
OTHERS = "(small groups)"
# Rspamd's stock actions (actions.conf): reject, and add header.
STOCK_REJECT, STOCK_ADD_HEADER = 15.0, 6.0

Fit = Callable[[Sequence[Judged]], Policy]  # makes a policy from judged messages of other sources
_COLUMN = 30
_HEAD = f"{'messages':>9}{'held':>7}{'%':>8}{'95 % interval':>16}{'suspicious':>12}{'%':>8}{'95 % interval':>16}"


class Share(Struct, frozen=True):
    """A number of messages among others."""

    count: int
    total: int

    @property
    def rate(self) -> float:
        return self.count / self.total if self.total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the rate (Wilson's score interval)."""
        if not self.total:
            return 0.0, 1.0
        n, p, z = self.total, self.rate, Z_95
        middle, spread = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)

    @property
    def percent(self) -> str:
        return f"{100 * self.rate:.2f}%" if self.total else "-"

    @property
    def interval_text(self) -> str:
        low, high = self.interval
        return f"{100 * low:.2f}-{100 * high:.2f}%" if self.total else "-"


def held(some: Sequence[Judged]) -> Share:
    return Share(sum(one.held for one in some), len(some))


def suspicious(some: Sequence[Judged]) -> Share:
    """Return the messages that are delivered with the verdict `suspicious`."""
    return Share(sum(not one.held and one.judgement.verdict is Verdict.SUSPICIOUS for one in some), len(some))


def counted(judged: Iterable[Judged]) -> list[Judged]:
    """Return the messages that are labelled good or bad."""
    return [one for one in judged if one.sample.kind != MALFORMED]


def ham_of(judged: Iterable[Judged]) -> list[Judged]:
    return [one for one in judged if one.sample.is_ham]


def attacks_of(judged: Iterable[Judged]) -> list[Judged]:
    return [one for one in judged if one.sample.is_attack]


def shipped_tables(judged: Sequence[Judged], *, blind: bool = False) -> Iterator[str]:
    """Yield what the shipped policy does, by corpus and group, and by language."""
    some = counted(judged)
    for corpus in dict.fromkeys(one.sample.corpus for one in some):
        own = [one for one in some if one.sample.corpus == corpus]
        yield f"\nAs shipped, profile balanced: {'this corpus' if blind else corpus}"
        yield f"{'group':{_COLUMN}}{_HEAD}"
        for part in (ham_of(own), attacks_of(own)):
            yield from _rows(_grouped(part, lambda one: one.sample.subset, blind=blind))
        kinds = _grouped(own, lambda one: one.sample.kind, blind=False)
        if len(kinds) > 2:
            yield from _rows({f"class {kind}": kinds[kind] for kind in CLASSES if kind in kinds})
        yield from _rows({"all ham": ham_of(own), "all attacks": attacks_of(own)})
        languages = {"ham": ham_of(own), "attacks": attacks_of(own)}
        if any(one.sample.language for one in own):
            yield f"{'language':{_COLUMN}}{_HEAD}"
            for name, part in languages.items():
                found = _grouped(part, lambda one: one.sample.language or "?", blind=blind)
                yield from _rows({f"{name} {language}": found[language] for language in found})
    unknown = sum(one.crashed for one in some)
    yield f"without a verdict (analysis incomplete): {unknown} of {len(some)}"


def _rows(groups: Mapping[str, Sequence[Judged]]) -> Iterator[str]:
    for name, some in groups.items():
        if some:
            cells = [held(some), suspicious(some)]
            text = "".join(
                f"{share.count:>{width}}{share.percent:>8}{share.interval_text:>16}"
                for share, width in zip(cells, (7, 12), strict=True)
            )
            yield f"{name:{_COLUMN}}{len(some):>9}{text}"


def _grouped(some: Iterable[Judged], key: Callable[[Judged], str], *, blind: bool) -> dict[str, list[Judged]]:
    """Return the messages by key, in alphabetical order; a blind run shows no group that is nearly one message."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for one in some:
        groups[key(one)].append(one)
    if blind:
        small = [name for name, members in groups.items() if len(members) < FEW]
        rest = [one for name in small for one in groups.pop(name)]
        return dict(sorted(groups.items())) | ({OTHERS: rest} if rest else {})
    return dict(sorted(groups.items()))


class LeftOut(Struct, frozen=True):
    """One source: as shipped, and by weights that were fitted without it."""

    name: str
    shipped: Share
    left_out: Share


def leave_sources_out(judged: Sequence[Judged], fit: Fit | None = None) -> tuple[list[LeftOut], list[LeftOut]]:
    """Judge each source by weights that were fitted without it; return the sources of ham and those of attacks.

    Without `fit` no weight was fitted, and both figures are those of the shipped policy.
    """
    some = counted(judged)

    def judge_again(source: Source, own: Sequence[Judged]) -> Sequence[Judged]:
        if fit is None:
            return own
        policy = fit([one for one in some if one.source != source])
        return try_all([one.scanned for one in own], policy)

    return compare_sources(some, judge_again)


def compare_sources(
    judged: Sequence[Judged], judge_again: Callable[[Source, Sequence[Judged]], Sequence[Judged]]
) -> tuple[list[LeftOut], list[LeftOut]]:
    """Compare each source as shipped with how it is judged again; return the sources of ham and those of attacks."""
    ham: list[LeftOut] = []
    attacks: list[LeftOut] = []
    for source in sorted({one.source for one in judged}):
        own = [one for one in judged if one.source == source]
        again = judge_again(source, own)
        for found, choose in ((ham, ham_of), (attacks, attacks_of)):
            if choose(own):
                found.append(LeftOut(" ".join(source), held(choose(own)), held(choose(again))))
    return ham, attacks


def left_out_tables(
    judged: Sequence[Judged], fit: Fit | None = None, *, rows: bool = True, named: bool = True
) -> Iterator[str]:
    """Yield the results when the weights were fitted without a source: in `rows` for each, and the worst."""
    yield "\nEach source left out (held)"
    if fit is None:
        yield "no weight was fitted: the figures are those of the shipped policy"
    yield from left_out_lines(*leave_sources_out(judged, fit), rows=rows, named=named)


def left_out_lines(
    ham: Sequence[LeftOut], attacks: Sequence[LeftOut], *, rows: bool = True, named: bool = True
) -> Iterator[str]:
    """Yield each source in `rows`, the share of all, and the worst."""
    for title, sources, worst_first in (("ham", ham, -1), ("attacks", attacks, 1)):
        ordered = sorted(sources, key=lambda each: worst_first * each.left_out.rate)
        if rows and named:
            columns = f"{'messages':>9}{'as shipped':>12}{'left out':>10}{'95 % interval':>17}"
            yield f"{'source of ' + title:{_COLUMN + 20}}{columns}"
            for each in ordered:
                yield (
                    f"{each.name:{_COLUMN + 20}}{each.shipped.total:>9}{each.shipped.percent:>12}"
                    f"{each.left_out.percent:>10}{each.left_out.interval_text:>17}"
                )
        share = Share(sum(each.left_out.count for each in sources), sum(each.left_out.total for each in sources))
        yield f"all {title}, each left out: {share.percent} held ({share.interval_text}), {len(sources)} sources"
        large = [each for each in ordered if each.left_out.total >= ENOUGH]
        worst = next(iter(large), None)
        if worst is not None:
            mean = sum(each.left_out.rate for each in large) / len(large)
            yield f"mean of the {len(large)} sources of {title} with {ENOUGH} messages or more: {100 * mean:.2f}%"
            name = f" {worst.name}" if named else ""
            text = f"{worst.left_out.percent} ({worst.left_out.interval_text}, n {worst.left_out.total})"
            yield f"worst source of {title} with {ENOUGH} messages or more:{name} {text}"


def rival_table(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield the result of bare Rspamd on the same messages: by its stock actions, and at our share of ham."""
    some = counted(judged)
    ham, attacks = ham_of(some), attacks_of(some)
    if not ham or not attacks or all(one.scanned.rspamd is None for one in some):
        return
    scores = [[_score(one) for one in part] for part in (ham, attacks)]
    same = threshold_at(held(ham).rate, scores[0])
    yield f"\n{'Compared with bare Rspamd':{_COLUMN}}{'ham':>9}{'attacks':>10}"
    yield f"{'Mailwarden as shipped, held':{_COLUMN}}{held(ham).percent:>9}{held(attacks).percent:>10}"
    for name, threshold in (
        ("Rspamd, reject (15)", STOCK_REJECT - 1e-6),
        ("Rspamd, add header (6)", STOCK_ADD_HEADER - 1e-6),
        ("Rspamd at our share of ham", same),
    ):
        cells = "".join(
            f"{100 * (share_above(threshold, part) or 0):>{width - 1}.2f}%"
            for part, width in zip(scores, (9, 10), strict=True)
        )
        yield f"{name:{_COLUMN}}{cells}"


def _score(one: Judged) -> float:
    return float("-inf") if one.scanned.rspamd is None else one.scanned.rspamd


def shipped_line(judged: Sequence[Judged]) -> str:
    """Return the line that scripts read."""
    ham, attacks = ham_of(counted(judged)), attacks_of(counted(judged))
    return (
        f"evaluate as shipped: ham held {held(ham).percent} suspicious {suspicious(ham).percent}"
        f" attacks held {held(attacks).percent} ({len(ham)} ham, {len(attacks)} attacks)"
    )
