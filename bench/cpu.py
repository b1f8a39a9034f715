"""The processor time of process trees, read from /proc: what each part of a scan costs."""

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(roots: Mapping[str, int]) -> dict[str, float]:
    """Return the seconds that each named process has used so far, with its descendants that have no name here."""
    named = {pid: name for name, pid in roots.items()}
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
    total = dict.fromkeys(roots, 0.0)
    for pid, seconds in used.items():
        owner = pid
        while owner > 1 and owner not in named:
            owner = parents.get(owner, 0)
        if owner in named:
            total[named[owner]] += seconds
    return total


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
