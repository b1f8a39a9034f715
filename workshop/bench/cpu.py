"""The processor time of process trees, read from /proc: the cost of each part of a scan."""

import asyncio
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workshop.bench.load import Ask, Load, run_load

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes to count: their names, and the names for the descendants of some of them."""

    roots: Mapping[str, int]
    children: Mapping[str, str]  # by the name of the parent: workers come and go

    @property
    def names(self) -> tuple[str, ...]:
        named = [(name, self.children.get(name)) for name in self.roots]
        return tuple(name for pair in named for name in pair if name is not None)


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round, with the processor time of each process in milliseconds a message."""

    load: Load
    cpu: Mapping[str, float]


def cpu_seconds(processes: Processes) -> dict[str, float]:
    """Return the seconds that each named process has used, with its descendants that have no name here."""
    named = {pid: name for name, pid in processes.roots.items()}
    stats = dict(_read_stats())
    total = dict.fromkeys(processes.names, 0.0)
    for pid, fields in stats.items():
        owner = pid
        while owner > 1 and owner not in named:
            owner = int(stats[owner][1]) if owner in stats else 0
        if owner in named:
            name = named[owner]
            below = processes.children.get(name, name)
            total[name if pid == owner else below] += _used(pid)
            total[below] += (int(fields[13]) + int(fields[14])) / _TICKS  # of children that have ended
    return total


def _used(pid: int) -> float:
    """Return the seconds of a process and its threads to the nanosecond; /proc has them in ticks of 10 ms."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) does
    except OSError:  # it has ended
        return 0.0


def _read_stats() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            yield int(entry.name), fields


async def run_counted(askers: Sequence[Ask], messages: Sequence[bytes], processes: Processes) -> Round:
    """Run a round as `run_load` does, and count the processor time of each process."""
    before = cpu_seconds(processes)
    load = await run_load(askers, messages)
    used = {name: seconds - before[name] for name, seconds in cpu_seconds(processes).items()}
    await asyncio.sleep(0.2)
    return Round(load, {name: seconds * 1000 / len(messages) for name, seconds in used.items()})


def show_cpu(columns: Mapping[str, Sequence[Round]], sums: Mapping[str, Sequence[str]]) -> None:
    """Print the processor time per message: the median of the rounds, and the lowest and the highest.

    A line of `sums` adds up the named processes; the last line adds up all of them.
    """
    names = tuple(next(iter(columns.values()))[0].cpu)
    print(f"\n{'CPU milliseconds a message':<28}" + "".join(f"{column:>22}" for column in columns))
    for line, parts in ({name: (name,) for name in names} | dict(sums) | {"all": names}).items():
        each = [[sum(one.cpu[part] for part in parts) for one in rounds] for rounds in columns.values()]
        print(f"{line:<28}" + "".join(f"{show_spread(values, 2):>22}" for values in each))


def show_spread(values: Sequence[float], digits: int) -> str:
    """Return the median, and the lowest and the highest value."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"
