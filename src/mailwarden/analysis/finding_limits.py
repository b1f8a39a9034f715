"""Limits the number of findings of each kind, and reports the findings that are left out."""

from collections import Counter
from collections.abc import Iterable, Iterator

from mailwarden.model.evidence import Finding, Omitted
from mailwarden.model.place import WHOLE_MESSAGE, Place

OF_A_KIND = 5


def few_of_each_kind(
    findings: Iterable[Finding], most: int = OF_A_KIND, place: Place = WHOLE_MESSAGE
) -> Iterator[Finding | Omitted]:
    """Yield the first findings of each name; a bound on all of them together would let harmless ones hide others.

    `place` is where all these findings are.
    """
    count: Counter[str] = Counter()
    for finding in findings:
        count[finding.name] += 1
        if count[finding.name] <= most:
            yield finding
        elif count[finding.name] == most + 1:
            yield Omitted(finding.name, place)
