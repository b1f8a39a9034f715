"""The data of `mailwarden doctor`: the host to check, and the line that a check reports."""

import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from mailwarden.abby.config import AbbyConfig
from mailwarden.guard.config import GuardConfig


@dataclass(frozen=True, slots=True)
class Host:
    """The configuration of this host: the folder, and the configuration of each process that has one here."""

    folder: Path
    guard: GuardConfig | None
    abby: AbbyConfig | None

    @property
    def configs(self) -> list[tuple[str, GuardConfig | AbbyConfig]]:
        """Return the name and the configuration of each process of this host."""
        both = (("guard", self.guard), ("abby", self.abby))
        return [(name, config) for name, config in both if config is not None]


@dataclass(frozen=True, slots=True)
class Line:
    """One dependency: whether it works, the result of the check, and the remedy if it does not work.

    A warning works today and needs attention: it shows its remedy and leaves the exit code at 0.
    """

    well: bool
    name: str
    seen: str
    remedy: str = ""
    warning: bool = False

    @property
    def state(self) -> str:
        if not self.well:
            return "FAIL"
        return "warn" if self.warning else "ok"

    def __str__(self) -> str:
        first = f"{self.state:<4}  {self.name:<22} {self.seen}"
        return first if self.state == "ok" or not self.remedy else f"{first}\n      {'':<22} -> {self.remedy}"


# A check yields one line for each dependency, and none if the host does not have it.
Check = Callable[[Host], AsyncIterator[Line]]


def announce(step: str) -> None:
    """Print the name of a slow step on standard error."""
    print(f"...   {step}", file=sys.stderr, flush=True)
