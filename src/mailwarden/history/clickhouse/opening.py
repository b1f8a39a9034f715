"""Opens the client of ClickHouse that the settings describe, with its metrics."""

import ssl
from contextlib import AsyncExitStack
from pathlib import Path

from mailwarden.errors import ConfigurationError
from mailwarden.history.clickhouse.client import Clickhouse, Kind, Target
from mailwarden.history.clickhouse.replicas import ReplicaWatch
from mailwarden.history.settings import ClickhouseSettings, HistoryStoreSettings
from mailwarden.serving.tls import client_context
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import PeriodicTask

IDLE_SECONDS = 30.0  # without a call, after which a process probes the store


class ClickhouseMeters:
    """The metrics of a client."""

    def __init__(self, metrics: Metrics, clickhouse: Clickhouse) -> None:
        self._seconds = metrics.histogram("history_store_seconds", "Seconds of a call to ClickHouse.", "kind")
        self._failures = metrics.counter("history_store_failures", "Calls that failed because ClickHouse is down.")
        self._stale = metrics.counter(
            "history_store_stale_reads", "Reads answered by a replica of ClickHouse that may lack the newest rows."
        )
        metrics.gauge("history_store_up", "Whether ClickHouse answered last time: 1 or 0.").set_function(
            lambda: clickhouse.up
        )

    def took(self, kind: Kind, seconds: float) -> None:
        self._seconds.labels(kind).observe(seconds)

    def failed(self) -> None:
        self._failures.inc()

    def stale_read(self) -> None:
        self._stale.inc()


def open_clickhouse(
    settings: HistoryStoreSettings, folder: Path, *, metrics: Metrics | None = None, logs: bool = False
) -> Clickhouse | None:
    """Return the client, or None if history is in PostgreSQL; nothing connects before the first call."""
    if settings.store != "clickhouse":
        return None
    given = settings.clickhouse
    target = Target(
        urls=tuple(url.rstrip("/") + "/" for url in given.urls),
        database=given.database,
        user=given.user,
        password=_password(folder / given.password_file) if given.password_file else "",
        replicated=given.replicated,
        quorum=given.quorum,
        connections=given.connections,
    )
    clickhouse = Clickhouse(target, _tls(given, folder), logs=logs)
    if given.replicated and len(target.urls) > 1:
        clickhouse.freshness = ReplicaWatch(clickhouse)
    if metrics is not None:
        clickhouse.meters = ClickhouseMeters(metrics, clickhouse)
    return clickhouse


def start_clickhouse(
    settings: HistoryStoreSettings,
    folder: Path,
    metrics: Metrics,
    stack: AsyncExitStack,
    *,
    idle_seconds: float = IDLE_SECONDS,
) -> Clickhouse | None:
    """Return the client of a process that runs until the stack is closed, or None if history is in PostgreSQL.

    The client probes ClickHouse while it has no calls: the metric is right also without searches. While there are
    calls, it does not: a probe that succeeds must not hide that every write fails.
    """
    client = open_clickhouse(settings, folder, metrics=metrics, logs=True)
    if client is None:
        return None

    async def probe_if_idle() -> None:
        if client.idle_seconds >= idle_seconds:
            await client.probe()

    stack.push_async_callback(client.close)
    probes = PeriodicTask("history store probe", probe_if_idle, idle_seconds, quiet=True)
    stack.push_async_callback(probes.stop)
    probes.start(at_once=True)
    return client


def _tls(settings: ClickhouseSettings, folder: Path) -> ssl.SSLContext | None:
    if not any(url.startswith("https:") for url in settings.urls):
        return None
    return client_context(folder / settings.ca) if settings.ca else ssl.create_default_context()


def _password(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"history.clickhouse.passwordFile: cannot read {path}: {reason}.") from None
