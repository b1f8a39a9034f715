"""The CPU budget of each step of a worker."""

import pytest

from mailwarden.pipeline.registry import LOCAL
from workshop.bench.budget import BUDGETS, measure, over_budget

pytestmark = pytest.mark.slow


def test_no_step_of_a_worker_uses_more_cpu_than_its_budget():
    used = measure()
    assert used.keys() == BUDGETS.keys(), "every step has a budget"
    # A pause of the machine in every round of one step is possible: a step over its budget is measured once more.
    over = over_budget(used)
    again = over_budget(measure()) if over else []
    assert not {*over} & {*again}, used


def test_every_analyzer_has_a_budget():
    assert {analyzer.name for analyzer in LOCAL} <= BUDGETS.keys()


def test_a_step_beyond_its_budget_or_without_one_is_named():
    assert over_budget({"html": BUDGETS["html"] + 0.1, "new": 0.1, "urls": 0.0}) == ["html", "new"]
