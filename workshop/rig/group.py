"""Runs a group of the checks and keeps its result; without arguments, prints the table of all groups.

Example: python -m workshop.rig.group evasion .venv/bin/pytest tests/evasion
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "run" / "check"
COUNTED = ("passed", "failed", "error", "skipped", "rerun")
SUMMARY = re.compile(r"^=* ?(\d+ .*) in [\d.]+s.*$")


def counts_in(lines: Iterable[str]) -> dict[str, int]:
    """Return the numbers of the last summary of pytest among these lines."""
    found = [match[1] for line in lines if (match := SUMMARY.match(line))]
    numbers = re.findall(r"(\d+) ([a-z]+)", found[-1]) if found else []
    return {word.removesuffix("s") if word == "errors" else word: int(number) for number, word in numbers}


def run(name: str, command: list[str]) -> int:
    """Run the command of a group, print what it prints, and write its result."""
    print(f"== {name}", flush=True)
    began = time.time()
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as done:
        assert done.stdout is not None
        for line in done.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    result = {"began": began, "ended": time.time(), "code": done.returncode, "counts": counts_in(lines[-5:])}
    (RESULTS / f"{name}.json").write_text(json.dumps(result))
    return done.returncode


def show() -> int:
    """Print a line for each group; return 1 if one failed or none ran."""
    results = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    if not results:
        print("No group of checks has run.")
        return 1
    print(f"{'group':14}" + "".join(f"{word:>9}" for word in COUNTED) + f"{'minutes':>9}")
    for name, each in sorted(results.items(), key=lambda item: float(item[1]["began"])):
        numbers = "".join(f"{each['counts'].get(word, '-'):>9}" for word in COUNTED)
        end = "" if each["code"] == 0 else "  FAILED"
        print(f"{name:14}{numbers}{(each['ended'] - each['began']) / 60:9.1f}{end}")
    seconds = max(each["ended"] for each in results.values()) - min(each["began"] for each in results.values())
    failed = sorted(name for name, each in results.items() if each["code"])
    print(f"{seconds / 60:.1f} minutes; " + (f"failed: {', '.join(failed)}" if failed else "every group passed"))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else show())
