"""The printed tables, and the summary line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mailwarden.model.outcome import Verdict
from mailwarden.policy.rules import Policy
from workshop.evaluate.corpus import BEC_QR, CLASSES, FIXTURE, HAM, MALFORMED, MALWARE, PHISHING, SPAM
from workshop.evaluate.figures import (
    CAUGHT,
    GOAL_RATE,
    RATES,
    Figures,
    figures_at,
    figures_shipped,
    is_measured,
    rspamd_score,
    spamassassin_score,
)
from workshop.evaluate.separation import Cause, FindingRow, causes, separating
from workshop.evaluate.trial import Judged, analyzers_of, try_without

BEST = 10
ENOUGH = 5  # false positives that a rate must allow, so that a single message does not decide it
_HEAD = f"{'':28}" + "".join(f"{kind:>10}" for kind in CAUGHT) + f"{'ham FPR':>10}{'+fixture':>10}  worst source of ham"


def percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f}%"


def result_table(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield the detection rate of each product at each threshold."""
    ham = sum(one.sample.kind == HAM for one in judged)
    if ham * GOAL_RATE < ENOUGH:
        allowed = int(ham * GOAL_RATE)
        yield f"Too few for a figure: {ham} messages of ham, of which {allowed} may exceed at {100 * GOAL_RATE:g} %"
    yield _HEAD
    yield _row("mailwarden as shipped", figures_shipped(judged))
    for rate in RATES:
        yield _row(f"mailwarden at {100 * rate:g} %", figures_at(rate, judged))
    yield _row(f"  {100 * GOAL_RATE:g} % with fixtures", figures_at(GOAL_RATE, judged, fixtures=True))
    for name, score in (("rspamd", rspamd_score), ("spamassassin", spamassassin_score)):
        if is_measured(judged, score):
            for rate in RATES:
                yield _row(f"{name} at {100 * rate:g} %", figures_at(rate, judged, score))


def _row(name: str, figures: Figures) -> str:
    cells = "".join(f"{percent(figures.caught[kind]):>10}" for kind in CAUGHT)
    worst = f"{percent(figures.worst.rate)} {figures.worst.subset} ({figures.worst.wrong} of {figures.worst.size})"
    ham = f"{percent_fine(figures.false_positives):>10}{percent_fine(figures.with_fixtures):>10}"
    return f"{name:28}{cells}{ham}  {worst if figures.worst.wrong else '-'}"


def percent_fine(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.2f}%"


def source_table(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield each source of each class: its shipped decisions, and the fraction above the threshold of the goal."""
    threshold = figures_at(GOAL_RATE, judged).threshold
    verdicts = [Verdict.SUSPICIOUS, Verdict.BULK, Verdict.UNKNOWN]
    names = "".join(f"{verdict:>12}" for verdict in verdicts)
    yield f"{'class':10}{'source':26}{'messages':>9}{'held':>8}{f'at {100 * GOAL_RATE:g}%':>8}{names}"
    for kind in CLASSES:
        subsets = sorted({one.sample.subset for one in judged if one.sample.kind == kind})
        for subset in subsets:
            some = [one for one in judged if one.sample.kind == kind and one.sample.subset == subset]
            held = sum(one.held for one in some) / len(some)
            above = sum(one.score > threshold for one in some) / len(some)
            rest = "".join(
                f"{percent(sum(one.judgement.verdict is verdict for one in some) / len(some)):>12}"
                for verdict in verdicts
            )
            yield f"{kind:10}{subset:26}{len(some):9}{percent(held):>8}{percent(above):>8}{rest}"


def robustness(judged: Iterable[Judged]) -> Iterator[str]:
    """Yield the messages without a usable result: malformed messages must not be among them."""
    some = list(judged)
    broken = [one for one in some if one.crashed]
    malformed = [one for one in some if one.sample.kind == MALFORMED]
    wrong = sum(one.crashed for one in malformed)
    yield f"malformed: {len(malformed)} messages, {wrong} without a verdict; all classes: {len(broken)} of {len(some)}"
    for one in broken[:BEST]:
        failures = "; ".join(failure.sentence for failure in one.scanned.evidence.failures)
        yield f"  {one.sample.path}: {one.scanned.problem or failures}"


def learned_table(learned: Sequence[Judged]) -> Iterator[str]:
    """Yield the detection rates with a tenant's learning."""
    yield _HEAD
    yield _row("mailwarden as shipped", figures_shipped(learned))
    for rate in RATES:
        yield _row(f"mailwarden at {100 * rate:g} %", figures_at(rate, learned))


def elsewhere_table(learned: Sequence[Judged], elsewhere: Sequence[Judged]) -> Iterator[str]:
    """Yield, for each source of ham, the held messages with it trained, and with all others trained."""
    yield f"{'source of ham':26}{'messages':>9}{'taught':>9}{'left out':>10}{'said bad':>10}"
    for subset in sorted({one.sample.subset for one in elsewhere}):
        some = [one for one in elsewhere if one.sample.subset == subset]
        taught = [one for one in learned if one.sample.kind == HAM and one.sample.subset == subset]
        bad = sum(any(name.startswith("learned.bad") for name in one.finding_names) for one in some)
        cells = (percent(sum(one.held for one in group) / len(group)) for group in (taught, some))
        row = "".join(f"{cell:>{size}}" for cell, size in zip(cells, (9, 10), strict=True))
        yield f"{subset:26}{len(some):9}{row}{percent(bad / len(some)):>10}"


def left_out_table(judged: Sequence[Judged], policy: Policy) -> Iterator[str]:
    """Yield the figures without each analyzer: the difference shows its contribution."""
    yield f"{'left out':20}{'phishing':>10}{'spam':>8}{'bec-qr':>8}{'malware':>9}{'worst ham':>11}   as shipped"
    for name in ("", *analyzers_of(judged)):
        rest = try_without(name, judged, policy) if name else judged
        goal, shipped = figures_at(GOAL_RATE, rest), figures_shipped(rest)
        cells = (*(percent(goal.caught[kind]) for kind in CAUGHT), percent(goal.worst.rate))
        sizes = (10, 8, 8, 9, 11)
        row = "".join(f"{cell:>{size}}" for cell, size in zip(cells, sizes, strict=True))
        both = " / ".join(percent(shipped.caught[kind]) for kind in (PHISHING, SPAM))
        yield f"{name or '(none)':20}{row}   {both} at {percent_fine(shipped.false_positives)}"


def finding_table(rows: Iterable[FindingRow]) -> Iterator[str]:
    yield f"{'finding':40}{'ham':>8}{'worst':>8}{'spam':>8}{'phishing':>10}{'bits':>9}  worst source of ham"
    for row in rows:
        cells = f"{percent_fine(row.ham):>8}{percent(row.worst):>8}{percent(row.spam):>8}{percent(row.phishing):>10}"
        yield f"{row.name:40}{cells}{row.gain:9.4f}  {row.worst_subset}"


def best_findings(judged: Sequence[Judged]) -> list[FindingRow]:
    return separating(judged)[:BEST]


def missed(judged: Iterable[Judged], kinds: Iterable[str]) -> list[Judged]:
    """Return the false negatives of the shipped policy."""
    wanted = set(kinds)
    return [one for one in judged if one.sample.kind in wanted and not one.held]


def false_positives(judged: Iterable[Judged]) -> list[Judged]:
    """Return the false positives of the shipped policy."""
    return [one for one in judged if one.sample.kind in (HAM, FIXTURE) and one.held]


def cause_tables(judged: Sequence[Judged]) -> Iterator[str]:
    groups: Mapping[str, Sequence[Judged]] = {
        "phishing that is delivered": missed(judged, [PHISHING]),
        "spam that is delivered": missed(judged, [SPAM]),
        "simulated BEC and QR that are delivered": missed(judged, [BEC_QR]),
        "simulated malware that is delivered": missed(judged, [MALWARE]),
        "ham that is quarantined": false_positives(judged),
    }
    for title, some in groups.items():
        yield f"{title}: {len(some)}, by the rule that weighs most"
        found = causes(some)
        yield from (f"  {_cause_text(cause)}" for cause in found[:BEST])
        if len(found) > BEST:
            yield f"  {sum(cause.count for cause in found[BEST:]):5}  in {len(found) - BEST} more groups"


def _cause_text(cause: Cause) -> str:
    subsets = ", ".join(f"{name} {count}" for name, count in cause.subsets)
    return f"{cause.count:5}  {cause.rule:34} score {cause.score:6.1f}  ({subsets})"


def last_line(judged: Sequence[Judged], learned: Sequence[Judged] | None = None) -> str:
    """Return the line that scripts read."""
    ours = figures_at(GOAL_RATE, judged)
    names = ((PHISHING, "phishing"), (SPAM, "spam"), (BEC_QR, "bec-qr"), (MALWARE, "malware"))
    caught = " ".join(f"{name} {percent(ours.caught[kind])}" for kind, name in names)
    return (
        f"evaluate at FPR {100 * GOAL_RATE:g}%: {caught} worst-ham {percent(ours.worst.rate)}"
        f" (learned: {_learned(learned)}) (rspamd {_pair(figures_at(GOAL_RATE, judged, rspamd_score))})"
    )


def _learned(judged: Sequence[Judged] | None) -> str:
    if judged is None:
        return "-"
    figures = figures_at(GOAL_RATE, judged)
    return f"{_pair(figures)} worst-ham {percent(figures.worst.rate)}"


def _pair(figures: Figures) -> str:
    return f"{percent(figures.caught[PHISHING])} {percent(figures.caught[SPAM])}"
