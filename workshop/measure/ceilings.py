"""Runs the fast tests and fails above their ceiling of CPU time; reads the ceilings of this checkout."""

import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")
LOOP = "loop_cpu"
SQUARES = 1_000_000


def read_ceilings() -> dict[str, int]:
    """Return the highest permitted value of each count."""
    return tomllib.loads(FILE.read_text("utf-8"))


def unit_of_cpu() -> float:
    """Return the seconds of CPU in which this machine sums a million squares: days of one machine differ by half."""

    def once() -> float:
        before = time.process_time()
        sum(number * number for number in range(SQUARES))
        return time.process_time() - before

    return min(once() for _ in range(5))


def main(command: Sequence[str]) -> int:
    """Run the command; CPU counts, because other work on the machine does not change it much."""
    unit = unit_of_cpu()
    code = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, ceiling = used.ru_utime + used.ru_stime, read_ceilings()[LOOP]
    units = seconds / max(unit, unit_of_cpu())
    print(f"{seconds:.0f} s of CPU: {units:,.0f} times that of a million squares, ceiling {ceiling:,}")
    if units > ceiling:
        print(f"The fast tests use more CPU than {FILE.name} permits: mark slow ones, or raise it with a reason.")
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
