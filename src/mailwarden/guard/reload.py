"""Uses changed settings in a running guard: reads and checks all of them first, then replaces them together.

A scan that has begun ends with the settings it began with.
"""

import asyncio
import hashlib
from pathlib import Path

import msgspec

from mailwarden.analysis.analyzers.yara import rule_files
from mailwarden.engines.table import open_engines
from mailwarden.errors import ConfigurationError
from mailwarden.guard.config import PATH, RELOADABLE, GuardConfig, check_rules, rules_folder
from mailwarden.guard.engine_watch import EngineWatch
from mailwarden.lists.lookup import ActingLists
from mailwarden.pipeline.collector import Collector
from mailwarden.pipeline.worker_pool import Timeouts, WorkerPool
from mailwarden.scan.admission import Admission
from mailwarden.scan.list_lookup import AllowlistRescan, ListLookup
from mailwarden.scan.scan import Processing, ScanParts
from mailwarden.serving.http_app import HttpApp
from mailwarden.serving.tls import ClientNames
from mailwarden.settings.effective import effective
from mailwarden.settings.reader import read
from mailwarden.settings.reload import Changes, merge
from mailwarden.telemetry.tracing import Tracing

YARA_FILES = "yara.rules (files)"


class GuardReload:
    """The parts of a guard that settings can replace, and the configuration in use."""

    def __init__(
        self,
        config: GuardConfig,
        folder: Path,
        *,
        admission: Admission,
        workers: WorkerPool,
        engines: EngineWatch,
        lists: ActingLists,
        processing: Processing,
        tracing: Tracing,
    ) -> None:
        self.config = config
        self._folder = folder
        self._admission = admission
        self._workers = workers
        self._engines = engines
        self._lists = lists
        self._processing = processing
        self._tracing = tracing
        self._rules = rules_digest(config, folder)
        self.settings = encoded_settings(config, folder)

    async def __call__(self, app: HttpApp) -> Changes:
        """Use the configuration on disk; raise ConfigurationError, without any change, if it is invalid."""
        new = await asyncio.to_thread(read, self._folder / PATH, GuardConfig)
        merged, changes = merge(self.config, new, RELOADABLE)
        await asyncio.to_thread(check_rules, merged, self._folder)
        rules = await asyncio.to_thread(rules_digest, merged, self._folder)
        if rules != self._rules and "yara.rules" not in changes.reloaded:
            changes = msgspec.structs.replace(changes, reloaded=(*changes.reloaded, YARA_FILES))
        clients = ClientNames(merged.tls.client_names, f"tls.clientNames in {PATH}")
        settings = encoded_settings(merged, self._folder)
        renewal = None
        if rules != self._rules or merged.workers != self.config.workers:
            try:
                renewal = await self._workers.prepare_renewal(
                    merged.workers.memory, worker_timeouts(merged), rules_folder(merged, self._folder)
                )
            except OSError as error:
                raise ConfigurationError(f"A worker does not start with the new settings: {error}") from None

        # Nothing below can fail: every part is replaced before the event loop runs another task.
        if merged.engines != self.config.engines:
            self._use_engines(merged)
        self._processing.use(msgspec.structs.replace(self._processing.parts, tempfail=is_tempfail(merged)))
        use_limits(self._admission, self._workers, merged)
        app.use(clients=clients)
        self.config, self.settings, self._rules = merged, settings, rules
        if renewal is not None:
            await renewal.run()
        return changes

    def _use_engines(self, config: GuardConfig) -> None:
        self._engines.use(open_engines(config.engines))
        self._processing.use(scan_parts(config, self._workers, self._engines, self._lists, self._tracing))


def scan_parts(
    config: GuardConfig, workers: WorkerPool, engines: EngineWatch, lists: ActingLists, tracing: Tracing
) -> ScanParts:
    """Return the parts of a scan that depend on settings."""
    return ScanParts(
        collector=Collector(workers, engines.engines, tracing),
        list_lookup=ListLookup(lists, AllowlistRescan(workers, engines.engines)),
        tempfail=is_tempfail(config),
    )


def is_tempfail(config: GuardConfig) -> bool:
    return config.on_engine_failure == "tempfail"


def use_limits(admission: Admission, workers: WorkerPool, config: GuardConfig) -> None:
    """Set how many requests guard processes at once."""
    admission.use(
        maximum=config.max_in_processing,
        threshold=config.throttle_threshold,
        max_delay=config.max_throttle_delay / 1000,
        max_bytes=config.max_bytes_in_flight,
    )
    workers.heavy_places = heavy_places(config)


def heavy_places(config: GuardConfig) -> int:
    return max(1, config.max_in_processing // 2)


def worker_timeouts(config: GuardConfig) -> Timeouts:
    workers = config.workers
    return Timeouts(workers.structure_timeout / 1000, workers.parse_timeout / 1000, workers.analyzer_timeout / 1000)


def rules_digest(config: GuardConfig, folder: Path) -> str:
    """Return a digest of the YARA rules, which change without a change of their folder's name."""
    digest = hashlib.sha256()
    rules = rules_folder(config, folder)
    for path in rule_files(Path(rules)) if rules else ():
        digest.update(str(path).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest() if rules else ""


def encoded_settings(config: GuardConfig, folder: Path) -> bytes:
    return msgspec.json.encode(effective(folder / PATH, config, PATH))
