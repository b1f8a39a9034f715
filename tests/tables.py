"""A table of cases as one test: every case is tried, and every one that fails is named with its error."""

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

SHOWN = 25
Case = TypeVar("Case")


def every(cases: Iterable[Case], check: Callable[[Case], object], name: Callable[[Case], object] = str) -> None:
    """Try `check` with each case; fail once, with all cases that failed."""
    tried, failures = 0, []
    for case in cases:
        tried += 1
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            failures.append(f"[{name(case)}] {where}: {type(error).__name__}: {error}")
    assert tried, "the table is empty"
    if failures:
        more = [f"and {len(failures) - SHOWN} more"] if len(failures) > SHOWN else []
        pytest.fail("\n".join([f"{len(failures)} of {tried} cases:", *failures[:SHOWN], *more]), pytrace=False)


def named(path: Path) -> str:
    """Return the name of a sample: its folder and its file."""
    return f"{path.parent.name}/{path.stem}"
