"""The metrics of a process's connection pools: up, connections in use, waiting and use times, failures."""

from collections.abc import Callable

from prometheus_client import Counter, Histogram

from mailwarden.database.pool import Database
from mailwarden.telemetry.metrics import Metrics, Samples


class PoolMeters:
    """The meters of one pool; `Database` calls them for each connection that it lends."""

    def __init__(self, waited: Histogram, used: Histogram, failures: Counter) -> None:
        self.waited = waited.observe
        self.used = used.observe
        self.failed = failures.inc


class DatabaseMetrics:
    """The metrics of all pools of a process. `main` is in use all the time, so it shows whether PostgreSQL is up."""

    def __init__(self, metrics: Metrics, main: Database) -> None:
        self._pools: dict[str, Database] = {}
        self._waited = metrics.histogram("database_wait_seconds", "Seconds a caller waited for a connection.", "pool")
        self._used = metrics.histogram("database_use_seconds", "Seconds a caller used a connection.", "pool")
        self._failures = metrics.counter("database_failures", "Uses that failed because the database is down.", "pool")
        metrics.gauge("database_up", "Whether the database answered last time: 1 or 0.").set_function(lambda: main.up)
        metrics.read_gauge(
            "database_connections_in_use", "Connections in use.", self._each(lambda pool: pool.in_use), "pool"
        )
        metrics.read_gauge(
            "database_connections_limit", "Connections at most.", self._each(lambda pool: pool.pool_size), "pool"
        )
        self.watch("main", main)

    def watch(self, name: str, pool: Database) -> None:
        """Measure a pool under this name."""
        self._pools[name] = pool
        pool.meters = PoolMeters(self._waited.labels(name), self._used.labels(name), self._failures.labels(name))

    def _each(self, read: Callable[[Database], int]) -> Callable[[], Samples]:
        return lambda: [((name,), read(pool)) for name, pool in self._pools.items()]
