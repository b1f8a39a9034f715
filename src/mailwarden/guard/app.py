"""Assembles guard: the engines, the workers, policy, history, the scan sources and the listener."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import uvloop
from aiohttp import web

from mailwarden import __version__
from mailwarden.access.demo_mark import DemoMark
from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.tenants import TenantDirectory
from mailwarden.crypto.keyring import read_ring
from mailwarden.crypto.self_tests import CRYPTOGRAPHY
from mailwarden.database.pool import Database
from mailwarden.database.pool_metrics import DatabaseMetrics
from mailwarden.engines.engine import AnyEngine
from mailwarden.engines.table import open_engines
from mailwarden.errors import CommandError
from mailwarden.events.scanned import ScannedEvents
from mailwarden.guard.background import running_jobs
from mailwarden.guard.config import PATH, GuardConfig, check_rules, domains_folder, rules_folder
from mailwarden.guard.context import PROGRAM, GuardContext, open_mail
from mailwarden.guard.engine_watch import EngineEvents, EngineWatch
from mailwarden.guard.reload import GuardReload, heavy_places, scan_parts, worker_timeouts
from mailwarden.guard.sources.abby import RestApi
from mailwarden.guard.sources.in_process import InProcess, scanning_disabled
from mailwarden.guard.sources.rspamd_api import open_rspamd_api
from mailwarden.guard.sources.smtp import open_smtp
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.opening import start_clickhouse
from mailwarden.history.opening import open_history
from mailwarden.history.writer import STOP_PATIENCE, HistoryWriter
from mailwarden.hop.local_guard import LocalGuard
from mailwarden.hop.records import GUARD_CONFIGURATION_PATH, GUARD_STATUS_PATH, SUBMIT_PATH, GuardStatus
from mailwarden.journal.journal import Journal
from mailwarden.lists.lookup import ActingLists
from mailwarden.lists.replica.follower import COPY_SECONDS, Follower
from mailwarden.lists.replica.matcher import Replica
from mailwarden.pipeline.sandbox import REQUIRED, check_out_of_reach
from mailwarden.pipeline.worker_pool import Lane, WorkerPool
from mailwarden.policy.rules import load_policy
from mailwarden.scan.admission import Admission
from mailwarden.scan.scan import Processing
from mailwarden.senders.lookup import SenderHistory, SenderHistoryReporter
from mailwarden.serving.http_app import Call, Handler, HttpApp, Route
from mailwarden.serving.server import Limits, Service, serve_until_stopped, serving
from mailwarden.serving.spool import prepare_spool
from mailwarden.serving.tls import CertificateMetrics, ClientNames, ServerTls, server_context
from mailwarden.settings.reader import read
from mailwarden.settings.shared import is_loopback
from mailwarden.telemetry.disks import DiskMetrics
from mailwarden.telemetry.logs import get_logger, start_logging
from mailwarden.telemetry.memory import tune_gc
from mailwarden.telemetry.metrics import CONTENT_TYPE, Metrics, Samples
from mailwarden.telemetry.periodic_task import end_tasks
from mailwarden.telemetry.self_tests import BASIC, require_known_answers
from mailwarden.telemetry.tracing import open_tracing
from mailwarden.user_reports.reports import ContentsSeal
from mailwarden.user_reports.store import ReportStore
from mailwarden.user_reports.training import Training

# Longest wait for the first list replica; after that guard opens its port and reports that the lists are missing.
LISTS_SECONDS = 10.0
HEALTH_CONNECTIONS = 20  # of probes at once
CONNECTION_SECONDS = 60.0  # then abby connects anew: to another guard behind the address, with certificates verified

log = get_logger(__name__)


def _open_rest_api(context: GuardContext) -> RestApi:
    return RestApi(context.admission, context.processing, context.spool, context.tracing)


def _rest_api(context: GuardContext) -> Handler:
    return _open_rest_api(context).submit


# The HTTP scan sources on guard's own port: the configuration key, the path and the handler.
SOURCES: tuple[tuple[str, str, Callable[[GuardContext], Handler]], ...] = (("rest_api", SUBMIT_PATH, _rest_api),)


class Guard:
    """A running guard: its status, and the listeners to close when it stops."""

    def __init__(
        self,
        config: GuardConfig,
        *,
        admission: Admission,
        engines: EngineWatch,
        database: Database,
        lists: Replica,
        workers: WorkerPool,
    ) -> None:
        self._config = config
        self._admission = admission
        self._engines = engines
        self._database = database
        self._lists = lists
        self._workers = workers
        self.name = config.name or socket.gethostname()
        self.stopping = False
        self.reload: GuardReload | None = None
        self.closers: tuple[Callable[[], None], ...] = ()  # of the sources with a listener of their own

    def status(self) -> GuardStatus:
        return GuardStatus(
            name=self.name,
            version=__version__,
            in_processing=self._admission.in_processing,
            max_in_processing=self._admission.maximum,
            engines=self._engines.states,
            database_up=self._database.up,
            scanning_enabled=self._config.scan_sources.rest_api is not None,
            stopping=self.stopping,
            lists_loaded=self._lists.loaded,
            lists_lag_seconds=self._lists.lag_seconds,
            max_waiting=self._admission.max_waiting,
            worker_sandbox=self._workers.layers,
        )

    def settings(self) -> bytes:
        """Return the configuration in use, as JSON."""
        assert self.reload is not None
        return self.reload.settings

    async def show_status(self, _: Call) -> web.StreamResponse:
        return web.Response(body=msgspec.json.encode(self.status()), content_type="application/json")

    async def show_ready(self, _: Call) -> web.StreamResponse:
        """Answer 200 if this guard can decide about a message now, else 503 with the reasons."""
        problems = list(self._not_ready())
        if problems:
            return web.Response(status=503, text=f"not ready: {', '.join(problems)}\n")
        return web.Response(text="ok\n")

    def _not_ready(self) -> Iterator[str]:
        if self.stopping:
            yield "guard is stopping"
        if not self._lists.loaded:
            yield "the lists are not loaded"
        for engine in self._engines.states:
            if engine.required and not engine.up:
                yield f"{engine.name} is down"

    def stop(self) -> None:
        self.stopping = True
        for close in self.closers:
            close()


async def reject_disabled(_: Call) -> web.StreamResponse:
    raise scanning_disabled()


async def answer_alive(_: Call) -> web.StreamResponse:
    return web.Response(text="ok\n")


@asynccontextmanager
async def open_guard(
    config: GuardConfig, folder: Path, metrics: Metrics
) -> AsyncIterator[tuple[Guard, HttpApp, LocalGuard]]:
    """Start guard with all its scan sources, among them one for an abby in this process."""
    async with (
        open_context(config, folder, metrics) as (guard, context),
        _tenants_updated(context),
        _mail_kept_inside(context),
        _open_jobs_and_smtp(context, guard.name) as close_smtp,
        open_rspamd_api(context) as close_rspamd_api,
        _open_health(config, guard),
    ):
        guard.closers = (close_smtp, close_rspamd_api)
        clients = ClientNames(config.tls.client_names, f"tls.clientNames in {PATH}")
        routes = _routes(context, guard, metrics)
        app = HttpApp(routes, metrics, clients=clients, ends_with_caller=True)
        api = _open_rest_api(context) if config.scan_sources.rest_api is not None else None
        yield guard, app, InProcess(api, app, guard.status, guard.settings)


@asynccontextmanager
async def _mail_kept_inside(context: GuardContext) -> AsyncIterator[None]:
    """Raise CommandError if the guard of a demo would send made-up mail to another host."""
    smtp, release = context.config.scan_sources.smtp, context.config.quarantine.release_address
    hops = [] if smtp is None else [smtp.next_hop_address, *([] if release is None else [release])]
    outside = [host for host, _ in hops if host != "localhost" and not is_loopback(host)]
    if outside and await DemoMark(context.database).is_set():
        raise CommandError(
            "guard does not start: the database is that of a demo, whose mail is made up, and "
            f"nextHop or releaseTo names another host ({outside[0]}). Name an address of this host in guard.yml."
        )
    yield


@asynccontextmanager
async def _open_jobs_and_smtp(context: GuardContext, guard: str) -> AsyncIterator[Callable[[], None]]:
    """Run the background jobs and, if configured, the scan source `smtp`, which share the next hop and the vault."""
    with open_mail(context, guard) as mail:
        async with running_jobs(context, mail), open_smtp(context, mail) as close:
            yield close


@asynccontextmanager
async def _open_health(config: GuardConfig, guard: Guard) -> AsyncIterator[None]:
    """Serve /healthz and /readyz on their own port, if configured; also while guard stops."""
    if config.health is None:
        yield
        return
    app = HttpApp(_health_routes(guard), Metrics())  # its requests are not counted: they are probes
    limits = Limits(max_connections=HEALTH_CONNECTIONS)
    async with serving(app, config.health, None, limits, grace_ms=0):
        yield


def _health_routes(guard: Guard) -> list[Route]:
    return [
        Route("GET", "/healthz", answer_alive, quiet=True),
        Route("GET", "/readyz", guard.show_ready, quiet=True),
    ]


@asynccontextmanager
async def open_context(
    config: GuardConfig, folder: Path, metrics: Metrics, engines: Sequence[AnyEngine] | None = None
) -> AsyncIterator[tuple[Guard, GuardContext]]:
    """Start everything that the scan sources use; stop it in reverse order. `engines`: others than the configured."""
    async with AsyncExitStack() as stack:
        tracing = open_tracing("guard", config.tracing.endpoint, config.tracing.sample_ratio)
        stack.push_async_callback(asyncio.to_thread, tracing.close)
        database = Database(config.database.url, config.database.pool_size, logs=True, pooled=config.database.pooled)
        stack.push_async_callback(database.close)
        pools = DatabaseMetrics(metrics, database)
        clickhouse = start_clickhouse(config.history, folder, metrics, stack)
        senders, journal = _start_history(config, folder, database, metrics, stack, clickhouse=clickhouse)
        lists = await _start_lists(config, folder, database, metrics, stack, pools=pools)
        workers = await _start_workers(config, folder, metrics, stack)
        engines = open_engines(config.engines) if engines is None else engines
        engine_events = EngineEvents(database, config.name or socket.gethostname())
        engine_events.start()
        stack.push_async_callback(engine_events.stop)
        watch = await _watch_engines(engines, metrics, stack, engine_events)
        admission = Admission(
            maximum=config.max_in_processing,
            threshold=config.throttle_threshold,
            max_delay=config.max_throttle_delay / 1000,
            max_bytes=config.max_bytes_in_flight,
        )
        _show_admission(admission, metrics)
        _measure_disks(config, folder, metrics, stack)
        training = _training(config, folder, database, engines)
        if training is not None:
            training.start()
            stack.push_async_callback(training.stop)
        guard = Guard(config, admission=admission, engines=watch, database=database, lists=lists, workers=workers)
        acting = ActingLists(lists)
        processing = Processing(
            guard=guard.name,
            timeout=config.analysis_timeout / 1000,
            parts=scan_parts(config, workers, watch, acting, tracing),
            sender_history=SenderHistoryReporter(senders),
            classifiers=training,
            policy=load_policy(),
            journal=journal,
            metrics=metrics,
            tracing=tracing,
        )
        guard.reload = GuardReload(
            config,
            folder,
            admission=admission,
            workers=workers,
            engines=watch,
            lists=acting,
            processing=processing,
            tracing=tracing,
        )
        yield (
            guard,
            GuardContext(
                config=config,
                folder=folder,
                admission=admission,
                processing=processing,
                spool=prepare_spool(folder / config.spool),
                database=database,
                clickhouse=clickhouse,
                tenants=TenantDirectory(TenantStore(database)),
                metrics=metrics,
                tracing=tracing,
            ),
        )


def _start_history(
    config: GuardConfig,
    folder: Path,
    database: Database,
    metrics: Metrics,
    stack: AsyncExitStack,
    *,
    clickhouse: Clickhouse | None,
) -> tuple[SenderHistory, Journal]:
    """Open the journal and start the writer of history."""
    events = config.events
    store = open_history(database, ScannedEvents(events.scanned, events.sample), clickhouse=clickhouse)
    journal = Journal.open(config.journal.place(folder, config.lists.replica), config.journal.limits, metrics)
    journal.start()
    stack.push_async_callback(journal.stop)
    senders = SenderHistory(store.senders)
    stack.push_async_callback(senders.stop)
    writer = HistoryWriter(journal, store, metrics, senders, store.campaigns)
    writer.start()
    grace = config.shutdown_grace_period / 1000
    stack.push_async_callback(writer.stop, grace, STOP_PATIENCE if config.journal.persistent else grace)
    return senders, journal


async def _watch_engines(
    engines: Sequence[AnyEngine], metrics: Metrics, stack: AsyncExitStack, events: EngineEvents
) -> EngineWatch:
    """Check the engines once, and then every second."""
    watch = EngineWatch(engines, metrics, events.changed)
    await watch.check()
    watching = asyncio.create_task(watch.run())
    stack.push_async_callback(end_tasks, watching)
    return watch


@asynccontextmanager
async def _tenants_updated(context: GuardContext) -> AsyncIterator[None]:
    """Keep the tenant directory current if a source assigns tenants by recipient; abby sends them otherwise."""
    sources = context.config.scan_sources
    if sources.smtp is not None or sources.rspamd_api is not None:
        await context.tenants.start()
    try:
        yield
    finally:
        await context.tenants.stop()


async def _start_workers(config: GuardConfig, folder: Path, metrics: Metrics, stack: AsyncExitStack) -> WorkerPool:
    """Start the workers. guard does not start if the sandbox fails, unless the configuration disables it."""
    settings = config.workers
    if settings.sandbox == REQUIRED:
        check_out_of_reach(folder)
    else:
        log.warning("worker_sandbox_disabled", setting="workers.sandbox", file=PATH)
    rules = rules_folder(config, folder)
    workers = WorkerPool(
        settings.effective_count,
        settings.memory,
        worker_timeouts(config),
        rules,
        settings.sandbox,
        domains=domains_folder(config, folder),
        heavy=settings.effective_heavy_count,
        heavy_places=heavy_places(config),
    )
    stack.push_async_callback(workers.stop)
    try:
        await workers.start()
    except OSError as error:
        raise CommandError(f"guard does not start: {error}") from None
    _show_workers(workers, metrics)
    counts = {"count": settings.effective_count, "heavy": settings.effective_heavy_count}
    log.info("workers_started", **counts, sandbox=workers.layers, phrases=workers.phrases)
    return workers


def _show_admission(admission: Admission, metrics: Metrics) -> None:
    metrics.gauge("guard_requests_in_processing", "Guard requests in processing.").set_function(
        lambda: admission.in_processing
    )
    metrics.gauge("guard_requests_limit", "Guard requests in processing at most.").set_function(
        lambda: admission.maximum
    )
    metrics.gauge("guard_requests_waiting", "Guard requests that wait for admission.").set_function(
        lambda: admission.waiting
    )
    metrics.gauge("guard_bytes_in_processing", "Bytes of the messages in processing.").set_function(
        lambda: admission.bytes_in_flight
    )
    metrics.gauge("guard_bytes_limit", "Bytes of the messages in processing at most.").set_function(
        lambda: admission.max_bytes
    )
    metrics.read_counter(
        "guard_requests_rejected", "Guard requests rejected because guard is full.", lambda: admission.rejected
    )


def _show_workers(workers: WorkerPool, metrics: Metrics) -> None:
    def each(read: Callable[[Lane], int]) -> Callable[[], Samples]:
        return lambda: [((lane.name,), read(lane)) for lane in workers.lanes]

    metrics.gauge("worker_sandbox", "1 where workers are sandboxed, 0 where the sandbox is disabled.").set(
        bool(workers.layers)
    )
    metrics.read_gauge("workers_running", "Worker processes that run.", each(lambda lane: lane.running), "lane")
    metrics.read_gauge("workers_idle", "Worker processes without a message.", each(lambda lane: lane.idle), "lane")
    metrics.read_gauge("workers_limit", "Worker processes as configured.", each(lambda lane: lane.count), "lane")
    metrics.read_gauge(
        "worker_requests_waiting", "Messages that wait for a worker.", each(lambda lane: lane.waiting), "lane"
    )
    metrics.read_counter("workers_replaced", "Worker processes that ended or were killed.", lambda: workers.replaced)
    metrics.gauge("heavy_requests_in_processing", "Heavy messages that wait for a worker or have one.").set_function(
        lambda: workers.heavy_in_hand
    )
    metrics.read_counter(
        "heavy_requests_refused",
        "Heavy messages rejected because too many are in processing.",
        lambda: workers.heavy_refused,
    )


def _measure_disks(config: GuardConfig, folder: Path, metrics: Metrics, stack: AsyncExitStack) -> None:
    lists = config.lists.replica
    folders = {
        "spool": folder / config.spool,
        "lists": folder / lists,
        "journal": config.journal.place(folder, lists),
    }
    if config.scan_sources.smtp is not None and config.quarantine.bucket is None:
        folders["quarantine"] = folder / config.quarantine.store
    disks = DiskMetrics(metrics, folders)
    stack.push_async_callback(disks.stop)
    disks.start()


def _training(config: GuardConfig, folder: Path, database: Database, engines: Sequence[AnyEngine]) -> Training | None:
    teacher = next(filter(None, (engine.teacher() for engine in engines)), None)
    if teacher is None:
        return None
    seal = ContentsSeal(read_ring(folder / config.contents.key, "contents.key"))
    return Training(ReportStore(database), teacher, seal, config.training.retention_days)


async def _start_lists(
    config: GuardConfig,
    folder: Path,
    database: Database,
    metrics: Metrics,
    stack: AsyncExitStack,
    *,
    pools: DatabaseMetrics,
) -> Replica:
    """Return the list replica, which follows the changes until guard stops."""
    path = folder / config.lists.replica
    replica = Replica(path)
    stack.callback(replica.close)
    copies = Database(config.database.url, 1, COPY_SECONDS, pooled=config.database.pooled)
    stack.push_async_callback(copies.close)
    pools.watch("list_copy", copies)
    follower = Follower(path, replica, database, copies, metrics)
    stack.push_async_callback(follower.stop)
    await follower.start(LISTS_SECONDS)
    return replica


def _routes(context: GuardContext, guard: Guard, metrics: Metrics) -> list[Route]:
    async def show_configuration(_: Call) -> web.StreamResponse:
        return web.Response(body=guard.settings(), content_type="application/json")

    async def show_metrics(_: Call) -> web.StreamResponse:
        return web.Response(body=metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    routes = [
        Route("GET", GUARD_STATUS_PATH, guard.show_status, quiet=True),
        Route("GET", GUARD_CONFIGURATION_PATH, show_configuration, quiet=True),
        Route("GET", "/metrics", show_metrics, quiet=True),
        *_health_routes(guard),
    ]
    for key, path, source in SOURCES:
        enabled = getattr(context.config.scan_sources, key) is not None
        routes.append(Route("POST", path, source(context) if enabled else reject_disabled, quiet=enabled))
    return routes


@asynccontextmanager
async def open_service(config: GuardConfig, folder: Path) -> AsyncIterator[tuple[Service, LocalGuard]]:
    """Start guard; yield its listener, and the calls for an abby in this process."""
    files = (folder / config.tls.certificate, folder / config.tls.key, folder / config.tls.ca)
    metrics = Metrics()
    certificates = CertificateMetrics(metrics)
    tls = ServerTls(lambda: certificates.loaded(server_context(*files), listener=files[0], ca=files[2]))
    async with open_guard(config, folder, metrics) as (guard, app, local):
        assert guard.reload is not None
        service = Service(
            PROGRAM,
            app,
            config.listen,
            tls,
            Limits(max_age=CONNECTION_SECONDS),
            grace_ms=config.shutdown_grace_period,
            reload=partial(guard.reload, app),
            on_stop=guard.stop,
        )
        yield service, local


async def _serve(config: GuardConfig, folder: Path) -> None:
    async with open_service(config, folder) as (service, _):
        tune_gc()
        await serve_until_stopped(service)


def read_config(folder: Path) -> GuardConfig:
    config = read(folder / PATH, GuardConfig)
    check_rules(config, folder)
    return config


def run_guard(folder: Path) -> int:
    """Run guard with the configuration in the folder until SIGTERM; return the exit code."""
    config = read_config(folder)
    start_logging(PROGRAM, config.log.level)
    require_known_answers(PROGRAM, BASIC, CRYPTOGRAPHY)
    uvloop.run(_serve(config, folder.resolve()))
    return 0
