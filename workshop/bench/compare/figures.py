"""The CPU of a message in both versions: the median ratio of the turns with a 95 % interval."""

import random
import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

RESAMPLES = 2_000
LEAST = 0.5  # milliseconds a message, below which a ratio shows what a process does between messages
PRODUCT = "the product"
ENGINES = "engines"

# Milliseconds of CPU a message, by the kind of process.
Used = Mapping[str, float]


class Turn(Struct, frozen=True):
    """The same messages in both versions, one after the other."""

    base: Used
    present: Used


class Ratio(Struct, frozen=True):
    """CPU of the present version divided by that of the base."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def ratio_of(turns: Sequence[Turn], kind: str) -> Ratio:
    """Return the median ratio of the turns; the interval comes from resampling them."""
    ratios = [turn.present[kind] / turn.base[kind] for turn in turns if turn.base[kind] > 0]
    dice = random.Random(1)
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return Ratio(statistics.median(ratios), medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)])


def print_table(ways: Mapping[str, Sequence[Turn]], kinds: Sequence[str]) -> None:
    """Print one row for each kind of process and way: the median of both versions, and their ratio."""
    turns = next(iter(ways.values()))
    print(f"\nCPU milliseconds a message, median of {len(turns)} turns; ratio of the turns with its 95 % interval")
    print(f"{'':<28}{'base':>8}{'present':>10}   ratio")
    for way, of_way in ways.items():
        for kind in kinds:
            base = statistics.median(turn.base[kind] for turn in of_way)
            present = statistics.median(turn.present[kind] for turn in of_way)
            ratio = "" if min(base, present) < LEAST else str(ratio_of(of_way, kind))
            print(f"{way + ' ' + kind:<28}{base:>8.2f}{present:>10.2f}   {ratio}".rstrip())
