"""The goals of abby's choice of guards, and whether a run reaches them."""

from collections.abc import Iterator
from dataclasses import dataclass

from simulate.results import Result
from simulate.scenarios import DEADLINE, KILLED, LOSS, OVERLOAD, PARTITION, ROLLING, SLOW, STEADY, UPGRADE, Scenario

MIN_GOODPUT = 0.95
MAX_P99_RATIO = 1.5
MAX_RECOVERY = 30.0
MAX_HERD = 2.0


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal with the figure of a run."""

    text: str
    figure: float
    reached: bool

    @property
    def line(self) -> str:
        return f"{'ok    ' if self.reached else 'MISSED'} {self.text}: {self.figure:.2f}"


def goals_of(scenario: Scenario, result: Result, ideal_p99: float) -> Iterator[Goal]:
    """Yield the goals of a scenario; the last two hold in every one."""
    if scenario is STEADY:
        ratio = result.latency(0.99) / ideal_p99
        yield Goal(f"p99 by that of a central queue, at most {MAX_P99_RATIO}", ratio, ratio <= MAX_P99_RATIO)
    if scenario is OVERLOAD:
        yield Goal(f"goodput by capacity, at least {MIN_GOODPUT}", result.goodput, result.goodput >= MIN_GOODPUT)
    if scenario in (PARTITION, KILLED):
        seconds = result.recovery(LOSS)
        yield Goal(f"seconds until recovery, at most {MAX_RECOVERY:.0f}", seconds, seconds <= MAX_RECOVERY)
    if scenario in (ROLLING, UPGRADE):
        text = f"attempts at returning guards by their fair share, at most {MAX_HERD:.0f}"
        yield Goal(text, result.herd, result.herd <= MAX_HERD)
        text = f"the same at one guard, the 99th percentile, at most {MAX_HERD:.0f}"
        yield Goal(text, result.herd_at_one, result.herd_at_one <= MAX_HERD)
    if scenario in (STEADY, SLOW, ROLLING, UPGRADE):  # p99 is that of answered messages alone
        yield Goal("messages that failed, none", result.failed, result.failed == 0)
    yield Goal("messages without an answer, none", result.unanswered, result.unanswered == 0)
    longest = result.longest
    yield Goal(f"seconds of the longest wait, at most {DEADLINE:.0f}", longest, longest <= DEADLINE + 0.001)


def same_answers(first: Result, second: Result) -> Goal:
    """Return the goal that a second run of the same seed gives the same answers."""
    differing = sum(one != other for one, other in zip(first.answers, second.answers, strict=False))
    differing += abs(len(first.answers) - len(second.answers))
    same = first.digest == second.digest and not differing
    return Goal("answers of a second run with the same seed that differ, none", differing, same)
