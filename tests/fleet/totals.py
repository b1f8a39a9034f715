"""The figures of one schedule and of all of them, as the test prints them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.fleet.checks import Result
from tests.fleet.faults import Injected


@dataclass
class Totals:
    """What all schedules have shown so far."""

    results: list[Result] = field(default_factory=list)
    times: list[Injected] = field(default_factory=list)
    wrong: set[int] = field(default_factory=set)  # seeds
    stopped: list[int] = field(default_factory=list)  # seeds without a comparison
    ends: list[Result] = field(default_factory=list)

    def add(self, seed: int, result: Result, injected: Sequence[Injected]) -> None:
        self.results.append(result)
        self.times += injected
        if result.failures or not all(each.in_time for each in injected):
            self.wrong.add(seed)

    def add_end(self, result: Result) -> None:
        """Add what all schedules of a fleet have left after its last fault."""
        self.ends.append(result)

    @property
    def failed(self) -> list[int]:
        return sorted({*self.wrong, *self.stopped})

    def __str__(self) -> str:
        seeds = f" ({', '.join(map(str, self.failed))})" if self.failed else ""
        stopped = f"{len(self.stopped)} schedules not compared, " if self.stopped else ""
        unfinished = sum(len(each.unfinished_clean) for each in self.results)
        undecided, refused = (sum(getattr(each, name) for each in self.results) for name in ("undecided", "refused"))
        return (
            f"{len(self.results) + len(self.stopped)} schedules, {len(self.failed)} failed{seeds}, "
            f"{len(self.times)} faults, {sum(each.scans for each in self.results)} scans "
            f"({undecided} undecided, {refused} refused or unanswered besides), "
            f"{sum(each.lists for each in self.results)} list changes, "
            f"{sum(each.mails for each in self.results)} mails, {sum(each.rows for each in self.results)} rows: "
            f"{self._longest()}{sum(each.rows_doubled for each in self.results)} duplicated, "
            f"{unfinished} clean without analysis, {stopped}"
            f"{sum(each.rows_dropped for each in self.results)} dropped, {self.lost} lost"
        )

    @property
    def lost(self) -> int:
        """Return what a schedule lost, or what was there after it and not in the end."""
        return sum(each.lost for each in self.results) + sum(each.lost for each in self.ends)

    def _longest(self) -> str:
        if not self.times:
            return ""
        return (
            f"longest without scans {max(each.without_scans for each in self.times):.1f} s, "
            f"without list changes {max(each.without_lists for each in self.times):.1f} s, "
            f"until all is well {max(each.repaired for each in self.times):.1f} s, "
            f"until history has all rows {max(each.written for each in self.times):.1f} s; "
        )


def describe(result: Result) -> str:
    return (
        f"{result.scans} scans ({result.undecided} undecided, {result.refused} refused or unanswered besides), "
        f"{result.lists} list changes, {result.mails} mails ({result.mail_repeated} repeated), "
        f"{result.rows} rows ({result.rows_dropped} dropped, "
        f"{result.rows_merged} written again and merged); {result.lost} lost, "
        f"{result.rows_doubled} duplicated, {len(result.unfinished_clean)} clean without analysis"
    )
