"""The metrics of one process, created once at its start and passed to its parts.

Names follow Prometheus: base units (`_seconds`, `_bytes`), `_total` for counters, and labels with few values of ours.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mailwarden import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 90.0)

Samples = Iterable[tuple[tuple[str, ...], float]]  # the values of the labels, and the value


class Metrics:
    """A separate registry, so that two processes in one test do not share metrics."""

    def __init__(self) -> None:
        # Creation times would be a second series for each counter and histogram, which no rule needs.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.gauge("build_info", "1, with the version of this process.", "version").labels(__version__).set(1)

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"mailwarden_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"mailwarden_{name}", text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"mailwarden_{name}", text, labels, registry=self.registry, buckets=_SECONDS)

    def read_counter(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a counter whose value another part of the process counts."""
        full = f"mailwarden_{name}"
        self.registry.register(_Read(lambda: CounterMetricFamily(full, text, value=read())))

    def read_gauge(self, name: str, text: str, read: Callable[[], Samples], *labels: str) -> None:
        """Add a gauge whose series are read at each scrape: a series without a value is absent."""

        def family() -> Metric:
            found = GaugeMetricFamily(f"mailwarden_{name}", text, labels=labels)
            for values, value in read():
                found.add_metric(values, value)
            return found

        self.registry.register(_Read(family))

    def page(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)


class _Read(Collector):
    """A metric that is made anew for each scrape."""

    def __init__(self, read: Callable[[], Metric]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        yield self._read()
