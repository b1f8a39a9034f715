"""Metrics whose values other parts of the process keep are read at each scrape."""

from mailwarden import __version__
from mailwarden.telemetry.metrics import Metrics


def test_a_read_counter_is_a_counter_with_the_value_of_the_scrape():
    metrics, values = Metrics(), iter((3, 5))
    metrics.read_counter("things", "Things.", lambda: next(values))
    assert b"# TYPE mailwarden_things_total counter\nmailwarden_things_total 3.0" in metrics.page()
    assert b"mailwarden_things_total 5.0" in metrics.page()


def test_a_read_gauge_has_the_series_that_exist_at_the_scrape():
    metrics, series = Metrics(), {"a": 1.0}
    metrics.read_gauge("sizes", "Sizes.", lambda: [((name,), value) for name, value in series.items()], "name")
    assert b'mailwarden_sizes{name="a"} 1.0' in metrics.page()
    series.clear()
    assert b"mailwarden_sizes{" not in metrics.page()


def test_the_version_and_the_process_are_shown():
    page = Metrics().page().decode()
    assert f'mailwarden_build_info{{version="{__version__}"}} 1.0' in page
    assert "process_start_time_seconds " in page
