"""The metrics of one process, made once at its start and handed to whoever counts."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 90.0)


class Metrics:
    """A registry of our own, so that two processes in one test do not share figures."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"mailwarden_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"mailwarden_{name}", text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"mailwarden_{name}", text, labels, registry=self.registry, buckets=_SECONDS)

    def page(self) -> bytes:
        """Return all figures in Prometheus's text form."""
        return generate_latest(self.registry)
