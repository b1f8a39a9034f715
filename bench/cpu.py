"""The processor time of process trees, read from /proc: what each part of a scan costs."""

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(roots: Mapping[str, int]) -> dict[str, float]:
    """Return the seconds that each named process and its descendants have used so far."""
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
    return {name: sum(used[pid] for pid in used if _descends(pid, root, parents)) for name, root in roots.items()}


def _descends(pid: int, root: int, parents: Mapping[int, int]) -> bool:
    while pid > 1:
        if pid == root:
            return True
        pid = parents.get(pid, 0)
    return False
