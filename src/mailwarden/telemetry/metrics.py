"""The metrics of one process, created once at its start and passed to its parts."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from mailwarden import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 90.0)


class Metrics:
    """A separate registry, so that two processes in one test do not share metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.gauge("build_info", "1, with the version of this process.", "version").labels(__version__).set(1)

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"mailwarden_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"mailwarden_{name}", text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"mailwarden_{name}", text, labels, registry=self.registry, buckets=_SECONDS)

    def page(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)
