"""Runs the fast tests and fails above their ceiling of CPU time; reads the ceilings of this checkout."""

import resource
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")
LOOP = "loop_cpu_seconds"


def read_ceilings() -> dict[str, int]:
    """Return the highest permitted value of each count."""
    return tomllib.loads(FILE.read_text("utf-8"))


def main(command: Sequence[str]) -> int:
    """Run the command; CPU time counts, because other work on the machine does not change it much."""
    code = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, ceiling = used.ru_utime + used.ru_stime, read_ceilings()[LOOP]
    print(f"{seconds:.0f} s of CPU, ceiling {ceiling}")
    if seconds > ceiling:
        print(f"The fast tests use more CPU than {FILE.name} permits: mark slow ones, or raise it with a reason.")
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
