"""The rules whose weight can be fitted, and the range of each weight."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from mailwarden.model.outcome import Verdict
from mailwarden.policy.rules import CONVICTION, Rule, bounds_of
from workshop.evaluate.sums import Message
from workshop.evaluate.trial import Source

# A rule of these analyzers states a fact of the operator, of an engine or of the message's form.
FIXED_ANALYZERS = frozenset({"lists", "learned", "structure", "clamav", "yara", "dns", "restraint", "newsletter"})
FIXED_VERDICTS = (Verdict.MALWARE, Verdict.BLOCKED, Verdict.BULK, Verdict.SPOOF)
LOWEST, HIGHEST = 0.5, 1.6  # of the shipped weight
ALONE = 95  # a rule that does not convict alone as shipped does not convict alone when fitted
_ID = re.compile(r"\s*- id: (\S+)\s*$")
_WEIGHT = re.compile(r"(\s+weight: )-?\d+(\s.*|\s*)$", re.DOTALL)
CARRIERS, SOURCES = 12, 2  # a weight is fitted only to so many messages, of so many sources


class Range(Struct, frozen=True):
    """A rule by its position in the policy, and the lowest and the highest weight that it may get."""

    rule: int
    least: int
    most: int


def is_fixed(rule: Rule) -> bool:
    """Return whether a rule defines a verdict, so that its weight is a decision and no measurement.

    These rules convict alone, force quarantine, restrain others or count for the leading verdict; or their analyzer
    or their verdict is fixed. A weight of 0 is a decision too.
    """
    return (
        abs(rule.weight) >= CONVICTION
        or rule.weight == 0
        or rule.forces_quarantine
        or rule.at_least_suspicious
        or rule.joins_leading
        or bool(rule.restrains)
        or rule.verdict in FIXED_VERDICTS
        or rule.id.partition(".")[0] in FIXED_ANALYZERS
    )


def range_of(rule: Rule) -> tuple[int, int]:
    """Return the lowest and the highest weight: the same sign, near the shipped one, and what a tenant may set."""
    least, most = sorted(round(factor * rule.weight) for factor in (LOWEST, HIGHEST))
    if rule.weight > 0:
        least = max(1, least)
    else:
        most = min(-1, most)
    allowed = bounds_of(rule)
    return max(least, allowed[0], -ALONE), min(most, allowed[1], ALONE)


def free_rules(rules: Sequence[Rule], messages: Sequence[Message]) -> list[Range]:
    """Return the rules that can be fitted to these messages: not fixed, and carried often and in several sources."""
    carriers: dict[int, int] = defaultdict(int)
    sources: dict[int, set[Source]] = defaultdict(set)
    for message in messages:
        for rule in message.rules:
            carriers[rule] += 1
            sources[rule].add(message.source)
    return [
        Range(place, *range_of(rule))
        for place, rule in enumerate(rules)
        if not is_fixed(rule) and carriers[place] >= CARRIERS and len(sources[place]) >= SOURCES
    ]


def write_weights(folder: Path, weights: Mapping[str, int]) -> None:
    """Write these weights to the rule files of a folder, and change nothing else in them."""
    missing = set(weights)
    for path in sorted(folder.glob("*.yml")):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        rule = ""
        for place, line in enumerate(lines):
            if found := _ID.match(line):
                rule = found[1]
            elif rule in missing and (found := _WEIGHT.match(line)):
                lines[place] = f"{found[1]}{weights[rule]}{found[2]}"
                missing.remove(rule)
        path.write_text("".join(lines), encoding="utf-8")
    if missing:
        raise SystemExit(f"No rule file has a weight of {', '.join(sorted(missing))}")
