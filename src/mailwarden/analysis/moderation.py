"""Keeps findings few without losing any kind of them: what many files do is told of some, whatever stands in front."""

from collections import Counter
from collections.abc import Iterable, Iterator

from mailwarden.model.evidence import Finding

OF_A_KIND = 5


def few_of_each_kind(findings: Iterable[Finding], most: int = OF_A_KIND) -> Iterator[Finding]:
    """Yield the first findings of each name; a bound on all of them together would let harmless ones hide others."""
    told: Counter[str] = Counter()
    for finding in findings:
        told[finding.name] += 1
        if told[finding.name] <= most:
            yield finding
