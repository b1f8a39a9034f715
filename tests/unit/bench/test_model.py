"""The prediction of `make bench-model` from CPU times."""

import pytest

from bench.model import Comparison, predict_rate

CPU = {"client": 1.0, "abby": 2.0, "guard": 4.0, "workers": 8.0, "rspamd": 5.0}


def test_the_cores_divide_the_work_of_a_message():
    assert predict_rate(2, CPU, 1) == pytest.approx(100)  # 2 cores, 20 ms a message
    assert predict_rate(4, CPU, 1) == pytest.approx(200)


def test_an_event_loop_uses_one_core_at_most():
    assert predict_rate(64, CPU, 1) == pytest.approx(250)  # guard: 4 ms
    assert predict_rate(64, CPU, 2) == pytest.approx(500)  # abby: 2 ms
    assert predict_rate(64, CPU, 8) == pytest.approx(500)


def test_the_error_is_the_median_of_the_turns():
    result = Comparison([110, 90, 220], [100, 100, 200])
    assert result.errors == pytest.approx([0.1, -0.1, 0.1])
    assert result.error == pytest.approx(0.1)
