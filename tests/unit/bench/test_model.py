"""The prediction of `make bench-model` from CPU times, and its goal."""

import msgspec
import pytest

from bench.model import FRESH, SHIPPED, Comparison, fresh_cpu, predict_rate, report
from mailwarden.cli.capacity import CpuCost, read_coefficients

CPU = {"client": 1.0, "abby": 2.0, "guard": 4.0, "workers": 6.0, "rspamd": 4.0, "clamd": 1.0, "postgresql": 2.0}


def predicted(cores, guards, kilobytes=5.0):
    return predict_rate(fresh_cpu(CPU), kilobytes, cores, CPU, guards)


def test_the_cores_divide_the_work_of_a_message():
    assert predicted(2, 1) == pytest.approx(100)  # 2 cores, 20 ms a message
    assert predicted(4, 1) == pytest.approx(200)
    assert predicted(2, 1, kilobytes=50.0) == pytest.approx(100)  # the times are of this size


def test_an_event_loop_uses_one_core_at_most():
    assert predicted(64, 1) == pytest.approx(250)  # guard: 4 ms
    assert predicted(64, 2) == pytest.approx(500)  # abby: 2 ms
    assert predicted(64, 8) == pytest.approx(500)


def test_every_process_has_a_role():
    costs = fresh_cpu(CPU)
    found = costs.abby.at(5), costs.guard.at(5), costs.engines.at(5), costs.database.at(5)
    assert found == pytest.approx((2, 10, 5, 2))


def test_shipped_coefficients_are_those_of_the_size():
    shipped = read_coefficients().cpu
    for kilobytes in (5.0, 50.0):
        need = sum(cost.at(kilobytes) for cost in msgspec.structs.asdict(shipped).values())
        assert predict_rate(shipped, kilobytes, 2, CPU, 1) == pytest.approx(2_000 / (need + 1))


def test_the_prediction_is_that_of_the_capacity_model(monkeypatch):
    before = predicted(2, 1)
    monkeypatch.setattr(CpuCost, "at", lambda self, kilobytes: 2 * self.at5k)
    assert predicted(2, 1) == pytest.approx(before / 2)


def test_the_error_is_the_median_of_the_turns():
    result = Comparison({FRESH: [110, 90, 220], SHIPPED: [100, 100, 100]}, [100, 100, 200])
    assert result.errors(FRESH) == pytest.approx([0.1, -0.1, 0.1])
    assert result.error(FRESH) == pytest.approx(0.1)
    assert result.error(SHIPPED) == 0


@pytest.mark.parametrize(("fresh", "reached"), [(114, True), (116, False), (86, True), (84, False)])
def test_the_goal_is_about_fresh_times(fresh, reached, capsys):
    results = {
        ("5k", 1): Comparison({FRESH: [100], SHIPPED: [300]}, [100]),
        ("5k", 2): Comparison({FRESH: [fresh], SHIPPED: [100]}, [100]),
    }
    assert report(results) is reached
    printed = capsys.readouterr().out
    assert "worst 200.0% with shipped coefficients" in printed
    assert ("MISSED" in printed) is not reached
