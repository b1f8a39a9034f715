"""How long messages took, as classes that are counted: eight to each doubling, so a class is known to nine percent."""

import math
from collections.abc import Mapping

CLASSES_PER_DOUBLING = 8
LAST_CLASS = 20 * CLASSES_PER_DOUBLING  # 2^20 ms, a quarter of an hour; whatever took longer is in it as well


def class_of(milliseconds: float) -> int:
    """Return the class of a duration; SQL computes the same in history/rollups.py."""
    return min(max(math.floor(math.log2(max(milliseconds, 1.0)) * CLASSES_PER_DOUBLING), 0), LAST_CLASS)


def percentile(counts: Mapping[int, int], part: float) -> float | None:
    """Return the milliseconds that `part` of the messages did not exceed, or None where there are none."""
    total = sum(counts.values())
    if not total:
        return None
    seen = 0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= part * total:
            return float(2 ** ((number + 0.5) / CLASSES_PER_DOUBLING))
    return None
