"""A small fleet with one fault of each kind and a killed HAProxy; `make check-long ONLY=fleet` runs the whole."""

import subprocess
import sys

import pytest

from tests.faults.conftest import Note

SECONDS = 400.0

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_a_small_fleet_loses_nothing_in_one_fault_of_each_kind_and_without_a_proxy(note: Note) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fleet", "--short"], check=False, capture_output=True, text=True, timeout=SECONDS
    )
    lines = done.stdout.splitlines()
    failed = "\n".join(line[:1_000] for line in lines if "FAILED" in line)
    assert done.returncode == 0, f"{failed}\n{done.stdout[-6_000:]}{done.stderr[-6_000:]}"
    note(f"fleet: {lines[-1]}")
    assert "5 faults" in lines[-1]
    assert lines[-1].endswith(", 0 lost")
