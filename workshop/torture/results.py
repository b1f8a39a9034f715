"""The result of each case, the table at the end, and the summary line."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

QUIET_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Result:
    """One case that was run; `wrong` has the unexpected result, and is empty if all was right."""

    kind: str
    name: str
    wrong: str
    milliseconds: float  # until the response arrived
    structure: float = 0.0  # of them for the structure check


@dataclass(slots=True)
class Results:
    """All results so far; each wrong one is printed at once."""

    all: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.all.append(result)
        if result.wrong:
            show_progress("")
            print(f"WRONG {result.kind}: {result.name}: {result.wrong}")

    @property
    def wrong(self) -> list[Result]:
        return [result for result in self.all if result.wrong]

    def of(self, kind: str) -> list[Result]:
        return [result for result in self.all if result.kind == kind]

    def summary(self) -> str:
        """Return the summary line; the slowest is the structure check that took longest."""
        slowest = max((result.structure for result in self.all), default=0.0)
        return f"torture {len(self.all)} cases {len(self.wrong)} wrong slowest {slowest:.0f} ms"


class Progress:
    """Overwrites its last line on a terminal; otherwise it prints a line now and then."""

    def __init__(self) -> None:
        self._shown = 0.0

    def show(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        elif text and time.monotonic() - self._shown > QUIET_SECONDS:
            self._shown = time.monotonic()
            print(text, file=sys.stderr, flush=True)


show_progress = Progress().show


def table(results: Results, kinds: Sequence[str]) -> str:
    lines = [f"{'kind':<12}{'cases':>7}{'wrong':>7}{'slowest answer':>15}"]
    for kind in kinds:
        own = results.of(kind)
        if own:
            wrong = sum(bool(result.wrong) for result in own)
            slowest = max(own, key=lambda result: result.milliseconds)
            lines.append(f"{kind:<12}{len(own):>7}{wrong:>7}{slowest.milliseconds:>12.0f} ms  {slowest.name}")
    return "\n".join(lines)
