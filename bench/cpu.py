"""The processor time of process trees, read from /proc: the cost of each part of a scan."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.load import Ask, Load, run_load

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(roots: Mapping[str, int]) -> dict[str, float]:
    """Return the seconds that each named process has used, with its descendants that have no name here."""
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


async def run_counted(
    askers: Sequence[Ask], messages: Sequence[bytes], count: int, roots: Mapping[str, int], cpu: dict[str, float]
) -> Load:
    """Run a round as `run_load` does, and add its processor time per process to `cpu`."""
    before = cpu_seconds(roots)
    load = await run_load(askers, messages, count)
    for name, seconds in cpu_seconds(roots).items():
        cpu[name] = cpu.get(name, 0.0) + seconds - before[name]
    await asyncio.sleep(0.2)
    return load


def show_cpu(columns: Mapping[str, Mapping[str, float]], total: int) -> None:
    """Print the processor time per message and process, a column for each kind of round of `total` messages."""
    print(f"\n{'CPU milliseconds a message':<28}" + "".join(f"{name:>13}" for name in columns))
    for name in next(iter(columns.values())):
        print(f"{name:<28}" + "".join(f"{cpu[name] / total * 1000:13.2f}" for cpu in columns.values()))
    print(f"{'all':<28}" + "".join(f"{sum(cpu.values()) / total * 1000:13.2f}" for cpu in columns.values()))
