"""Limits the number of findings of each kind, and reports the findings that are left out."""

from collections import Counter
from collections.abc import Iterable, Iterator

from mailwarden.model.evidence import Finding, Omitted
from mailwarden.model.place import WHOLE_MESSAGE, Place

PER_KIND = 5


def limit_each_kind(
    findings: Iterable[Finding], most: int = PER_KIND, place: Place = WHOLE_MESSAGE
) -> Iterator[Finding | Omitted]:
    """Yield the first findings of each name; a limit for all together would let harmless findings hide others.

    `place` is where all these findings are.
    """
    count: Counter[str] = Counter()
    for finding in findings:
        count[finding.name] += 1
        if count[finding.name] <= most:
            yield finding
        elif count[finding.name] == most + 1:
            yield Omitted(finding.name, place)
