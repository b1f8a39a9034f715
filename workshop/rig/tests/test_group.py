"""A group of checks keeps its numbers and its failure."""

import sys
from pathlib import Path

import pytest

from workshop.rig import group


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("=== 1 failed, 2 passed, 3 skipped in 4.56s ===", {"failed": 1, "passed": 2, "skipped": 3}),
        ("== 9 passed, 4 deselected, 1 rerun in 75.00s (0:01:15) ==", {"passed": 9, "deselected": 4, "rerun": 1}),
        ("2 passed, 2 errors in 0.10s", {"passed": 2, "error": 2}),
        ("Success: no issues found in 3 source files", {}),
    ],
)
def test_the_numbers_of_a_summary_are_read(line: str, counts: dict[str, int]) -> None:
    assert group.counts_in(["collected 9 items", line, ""]) == counts


def test_the_table_names_the_groups_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(group, "RESULTS", tmp_path)
    assert group.show() == 1, "nothing ran"
    for name, code in (("good", 0), ("bad", 3)):
        words = [sys.executable, "-c", f"print('7 passed in 1.00s'); raise SystemExit({code})"]
        assert group.run(name, words) == code
    assert group.show() == 1
    shown = capfd.readouterr().out.splitlines()
    assert [line.split()[:2] for line in shown[-3:-1]] == [["good", "7"], ["bad", "7"]]
    assert shown[-1].endswith("failed: bad")
