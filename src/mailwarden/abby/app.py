"""Assembles abby: the route table, credentials, guards, tenants, console and the HTTPS listener."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
import uvloop

from mailwarden.abby.config import PATH, AbbyConfig, ConsoleConfig
from mailwarden.abby.endpoints import build_routes
from mailwarden.abby.reload import AbbyReload
from mailwarden.abby.status import AbbyDeployment, ColourMemory, Health, Status
from mailwarden.abby.submit import Scanning, WatchedAnalyses
from mailwarden.access.audit import AuditStore
from mailwarden.access.callers import Access, KeyAccess
from mailwarden.access.demo_mark import DemoMark
from mailwarden.access.idempotency import IdempotencyStore
from mailwarden.access.keys import ApiKeys, KeyStore
from mailwarden.access.login import build_registry
from mailwarden.access.openid import OpenIdSettings, Provider
from mailwarden.access.pepper import PepperStore
from mailwarden.access.rate_limits import LeaseStore, SharedRateLimiter
from mailwarden.access.saved_searches import SavedSearches
from mailwarden.access.sessions import SessionLimits
from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.users import Role
from mailwarden.console.app import Services, build_console
from mailwarden.console.auth import VisitorSessions
from mailwarden.console.list_form import ListContext
from mailwarden.crypto.keyring import KeyRing, read_ring
from mailwarden.crypto.self_tests import CRYPTOGRAPHY
from mailwarden.database.pool import Database
from mailwarden.database.pool_metrics import DatabaseMetrics
from mailwarden.errors import ConfigurationError
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.event_delivery.api import READERS, EventsApi
from mailwarden.event_delivery.opening import open_channels, open_delivery, open_receivers
from mailwarden.event_delivery.senders import Channels
from mailwarden.events.reader import EventReader
from mailwarden.events.waiting import EventWatch
from mailwarden.feeds.assembly import COMMAND_SECONDS, CONNECTIONS, open_feeds
from mailwarden.feeds.http_client import open_http, trust_of
from mailwarden.feeds.job import FeedJob
from mailwarden.feeds.service import FeedService
from mailwarden.history.api import RUNNING, MessagesApi
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.opening import start_clickhouse
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore
from mailwarden.hop.client import GuardClient
from mailwarden.hop.guards import Guard, GuardWatch
from mailwarden.hop.https import HttpTransport, open_session
from mailwarden.hop.in_process import InProcessTransport
from mailwarden.hop.local_guard import LocalGuard
from mailwarden.lists.api import ListApi
from mailwarden.lists.checking import Checker
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.expiry import Expiry
from mailwarden.lists.service import ListService
from mailwarden.lists.store import STREAM_SECONDS, ListStore
from mailwarden.model.scope import Scope
from mailwarden.pipeline.previews import Previews
from mailwarden.policy.impact import History, ImpactEstimator
from mailwarden.policy.rules import Policy, load_policy
from mailwarden.quarantine.api import QuarantineApi
from mailwarden.quarantine.digest_links import DigestLinkService, DigestLinkSigner
from mailwarden.quarantine.digest_store import DigestStore
from mailwarden.quarantine.service import QuarantineService
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import open_vault
from mailwarden.serving.http_app import HttpApp, Route
from mailwarden.serving.server import Limits, Service, serve_until_stopped
from mailwarden.serving.spool import prepare_spool
from mailwarden.serving.tls import CertificateMetrics, ServerTls, client_context, server_context
from mailwarden.settings.reader import read
from mailwarden.settings.shared import Networks
from mailwarden.telemetry.disks import DiskMetrics
from mailwarden.telemetry.logs import start_logging
from mailwarden.telemetry.memory import tune_gc
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.self_tests import BASIC, PASSWORDS, require_known_answers
from mailwarden.telemetry.tracing import open_tracing
from mailwarden.user_reports.api import ReportApi
from mailwarden.user_reports.cases.service import CaseService
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.outlook import OutlookAddIn
from mailwarden.user_reports.reports import ContentsSeal
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.store import ReportStore
from mailwarden.weekly_report.service import open_weekly_reports
from mailwarden.weekly_report.store import SubscriptionStore

PROGRAM = "abby"
SEARCHES = 4  # concurrent searches of history; others wait
DELIVERIES = 2  # database connections for the delivery of events
NO_LOCAL_GUARDS: Mapping[str, LocalGuard] = {}

OPENID_CALLBACK = "/console/login/openid/callback"
MAX_PROVIDER_CONNECTIONS = 8


@dataclass(frozen=True, slots=True)
class AbbyContext:
    """The parts of abby that the APIs and the console share."""

    config: AbbyConfig
    reload: AbbyReload
    folder: Path
    metrics: Metrics
    spool: Path
    database: Database
    pools: DatabaseMetrics
    directory: TenantDirectory
    lists: ListService
    watch: GuardWatch
    guards: GuardClient
    status: Status
    pepper: KeyRing
    keys: ApiKeys
    contents_key: KeyRing
    history: HistoryStore
    clickhouse: Clickhouse | None
    reports: ReportService
    quarantine: QuarantineService
    events: EventReader
    event_watch: EventWatch


@asynccontextmanager
async def open_abby(
    config: AbbyConfig, folder: Path, metrics: Metrics, local: Mapping[str, LocalGuard] = NO_LOCAL_GUARDS
) -> AsyncIterator[tuple[HttpApp, AbbyReload]]:
    """Start all parts of abby; stop them in reverse order. `local` has the guards in this process by address."""
    async with AsyncExitStack() as stack:
        context = await _open_context(config, folder, metrics, stack, local)
        channels = await _start_delivery(context, stack)
        routes = [
            *_api_routes(context, stack),
            *build_console(await _console_services(context, channels, stack)),
            *OutlookAddIn(config.outlook, config.console.public_url).routes(),
        ]
        app = HttpApp(routes, context.metrics)
        context.event_watch.is_stopping = lambda: app.stopping
        use_in_responses(app, config)
        context.reload.add(partial(use_in_responses, app))
        yield app, context.reload


def use_in_responses(app: HttpApp, config: AbbyConfig) -> None:
    """Set the trusted proxies and the headers of every response."""
    # RFC 6797. abby listens with TLS alone, so that the field is never sent in the clear (section 7.2).
    headers = {"Strict-Transport-Security": f"max-age={config.hsts_max_age}"}
    app.use(proxies=Networks.of(config.trusted_proxies), headers=headers)


async def _open_context(
    config: AbbyConfig, folder: Path, metrics: Metrics, stack: AsyncExitStack, local: Mapping[str, LocalGuard]
) -> AbbyContext:
    database = Database(config.database.url, config.database.pool_size, logs=True, pooled=config.database.pooled)
    stack.push_async_callback(database.close)
    await DemoMark(database).require(demo=config.demo)
    pools = DatabaseMetrics(metrics, database)
    directory = TenantDirectory(TenantStore(database))
    await directory.start()
    stack.push_async_callback(directory.stop)
    lists = _start_lists(config, database, pools, stack)
    watch, guards, status = await _start_guards(config, folder, database, metrics, stack, local=local)
    spool = prepare_spool(folder / config.spool)
    _measure_disks(config, folder, metrics, stack)
    pepper = read_ring(folder / config.api_key_pepper, "apiKeyPepper")
    lost_keys = asyncio.create_task(PepperStore(database).log_lost_keys(Scope.deployment(), pepper))
    stack.callback(lost_keys.cancel)
    contents_key = read_ring(folder / config.contents.key, "contents.key")
    clickhouse = start_clickhouse(config.history, folder, metrics, stack)
    history = open_history(database, clickhouse=clickhouse)
    vault = open_vault(config.quarantine, folder, contents_key)
    readers = Database(config.database.url, READERS + 1, pooled=config.database.pooled)  # and one for the watch
    stack.push_async_callback(readers.close)
    pools.watch("events", readers)
    events = EventReader(readers)
    event_watch = EventWatch(events)
    metrics.gauge("events_clients_waiting", "Clients that wait for events.").set_function(lambda: event_watch.waiting)
    stack.push_async_callback(event_watch.stop)
    return AbbyContext(
        config=config,
        reload=AbbyReload(config, folder),
        folder=folder,
        metrics=metrics,
        spool=spool,
        database=database,
        pools=pools,
        directory=directory,
        lists=lists,
        watch=watch,
        guards=guards,
        status=status,
        pepper=pepper,
        keys=ApiKeys(KeyStore(database), pepper),
        contents_key=contents_key,
        history=history,
        clickhouse=clickhouse,
        reports=ReportService(ReportStore(database), history, ContentsSeal(contents_key)),
        quarantine=QuarantineService(QuarantineStore(database), vault, lists, spool),
        events=events,
        event_watch=event_watch,
    )


async def _start_delivery(context: AbbyContext, stack: AsyncExitStack) -> Channels:
    """Deliver events to the endpoints, with separate database connections; return the channels to receivers."""
    config, settings = context.config, context.config.events
    database = Database(config.database.url, DELIVERIES, pooled=config.database.pooled)
    stack.push_async_callback(database.close)
    context.pools.watch("event_delivery", database)
    authority = context.folder / settings.ca if settings.ca else None
    rules = AddressRules.of(settings.allow_private_networks, settings.refuse_networks)
    folder = context.folder / settings.folder
    channels = await stack.enter_async_context(open_channels(rules, authority, folder, context.pepper))
    await stack.enter_async_context(open_delivery(database, channels, context.metrics))
    return channels


def _measure_disks(config: AbbyConfig, folder: Path, metrics: Metrics, stack: AsyncExitStack) -> None:
    folders = {"spool": folder / config.spool}
    if config.quarantine.bucket is None:
        folders["quarantine"] = folder / config.quarantine.store
    disks = DiskMetrics(metrics, folders)
    stack.push_async_callback(disks.stop)
    disks.start()


def _start_lists(config: AbbyConfig, database: Database, pools: DatabaseMetrics, stack: AsyncExitStack) -> ListService:
    """Return the list service; listEntries has its own connections, and expired entries are removed."""
    streams = Database(config.database.url, config.max_list_streams, STREAM_SECONDS, pooled=config.database.pooled)
    stack.push_async_callback(streams.close)
    pools.watch("list_streams", streams)
    store = ListStore(database, streams)
    expiry = Expiry(store)
    expiry.start()
    stack.push_async_callback(expiry.stop)
    return ListService(store)


async def _start_guards(
    config: AbbyConfig,
    folder: Path,
    database: Database,
    metrics: Metrics,
    stack: AsyncExitStack,
    *,
    local: Mapping[str, LocalGuard],
) -> tuple[GuardWatch, GuardClient, Status]:
    tls = client_context(folder / config.tls.ca, folder / config.tls.certificate, folder / config.tls.key)
    session = await stack.enter_async_context(open_session(tls))
    addresses = config.service_providers.core.hosts
    watch = GuardWatch(
        [
            Guard(address, InProcessTransport(local[address]) if address in local else HttpTransport(session, address))
            for address in addresses
        ]
    )
    watch.show(metrics)
    status = Status(watch, lambda: database.up, ColourMemory())
    await watch.start(status.observe)
    stack.push_async_callback(watch.stop)
    tracing = open_tracing(PROGRAM, config.tracing.endpoint, config.tracing.sample_ratio)
    stack.push_async_callback(asyncio.to_thread, tracing.close)
    return watch, GuardClient(watch, metrics, tracing), status


def _api_routes(context: AbbyContext, stack: AsyncExitStack) -> list[Route]:
    config, database = context.config, context.database
    scanning = Scanning(
        context.guards,
        context.directory,
        IdempotencyStore(database),
        context.spool,
        context.metrics,
        max_uploads=config.max_uploads,
        body_timeout_ms=config.body_timeout,
        long_request_timeout_ms=config.service_providers.core.long_request_timeout,
    )
    lists = ListApi(
        context.lists,
        context.directory,
        body_timeout_ms=config.body_timeout,
        max_streams=config.max_list_streams,
    )
    access = Access(config.static_api_tokens, context.keys)
    rates = SharedRateLimiter(config.lists_rate_limit, LeaseStore(database))

    def use(changed: AbbyConfig) -> None:
        access.use(changed.static_api_tokens)
        rates.limit = changed.lists_rate_limit
        scanning.uploads.maximum = changed.max_uploads

    context.reload.add(use)
    return build_routes(
        access,
        KeyAccess(context.keys, rates),
        scanning=scanning,
        status=context.status,
        lists=lists,
        messages=_open_messages(context, access, stack),
        reports=ReportApi(context.reports, context.directory, body_timeout_ms=config.body_timeout),
        quarantine=QuarantineApi(context.quarantine, body_timeout_ms=config.body_timeout),
        events=EventsApi(context.events, context.event_watch, context.directory, access),
        health=Health(lambda: context.directory.loaded and context.watch.any_usable, context.metrics),
    )


def _open_messages(context: AbbyContext, access: Access, stack: AsyncExitStack) -> MessagesApi:
    """Return the messages API; its searches take no connection of scans or of the console."""
    searches = Database(context.config.database.url, RUNNING, pooled=context.config.database.pooled)
    stack.push_async_callback(searches.close)
    context.pools.watch("api_searches", searches)
    audit = AuditStore(context.database)
    return MessagesApi(
        context.history, open_history(searches, clickhouse=context.clickhouse), context.directory, audit, access
    )


async def _console_services(context: AbbyContext, channels: Channels, stack: AsyncExitStack) -> Services:
    config, database = context.config, context.database
    limits = SessionLimits(config.console.session_idle, config.console.session_absolute)
    registry = build_registry(database, context.pepper, limits)
    stack.callback(registry.passwords.close)
    visitors = VisitorSessions(registry, config.console.public_url)
    await offer_openid_login(stack, visitors, config.console, context.folder)
    # Searches have their own connections, so that they never delay a scan.
    searches = Database(config.database.url, SEARCHES, pooled=config.database.pooled)
    stack.push_async_callback(searches.close)
    context.pools.watch("searches", searches)
    history, policy = open_history(searches, clickhouse=context.clickhouse), load_policy()
    feeds = await _start_feeds(context, policy, stack)
    timeout_ms = config.service_providers.core.long_request_timeout
    cases = CaseService(CaseStore(database), history, context.reports, ContentsSeal(context.contents_key))
    return Services(
        cases=cases,
        reports=context.reports,
        quarantine=context.quarantine,
        self_service=DigestLinkService(DigestLinkSigner(context.contents_key), DigestStore(database)),
        sessions=registry.sessions,
        visitors=visitors,
        keys=context.keys,
        directory=context.directory,
        tenants=TenantStore(database),
        audit=AuditStore(database),
        deployment=AbbyDeployment(context.reload, context.watch, context.status, database),
        analyses=WatchedAnalyses(context.guards, context.directory, long_request_timeout_ms=timeout_ms),
        history=history,
        searches=SavedSearches(database),
        policy=policy,
        lists=build_list_context(context.lists, database, history, policy),
        feeds=feeds,
        receivers=open_receivers(database, context.pepper),
        event_channels=channels,
        previews=Previews(sandbox=config.console.preview_sandbox),
        spool=context.spool,
        metrics=context.metrics,
        weekly_reports=open_weekly_reports(database, history),
        subscriptions=SubscriptionStore(database),
        demo=config.demo,
    )


async def _start_feeds(context: AbbyContext, policy: Policy, stack: AsyncExitStack) -> FeedService:
    """Return the feed service, and run the feeds that are due until the stack is closed."""
    config = context.config
    database = Database(config.database.url, CONNECTIONS, COMMAND_SECONDS, pooled=config.database.pooled)
    stack.push_async_callback(database.close)
    context.pools.watch("feeds", database)
    rules = AddressRules.of(config.feeds.allowed_networks, config.events.refuse_networks)
    http = await stack.enter_async_context(open_http(rules, trust_of(context.folder, config.feeds.ca)))
    service = open_feeds(database, http, context.contents_key, policy, clickhouse=context.clickhouse)
    job = FeedJob(service, http, context.metrics)
    stack.push_async_callback(job.stop)
    job.start()
    return service


@asynccontextmanager
async def open_service(
    config: AbbyConfig, folder: Path, local: Mapping[str, LocalGuard] = NO_LOCAL_GUARDS
) -> AsyncIterator[Service]:
    """Start abby, and yield its listener."""
    public = config.public_tls or config.tls
    metrics = Metrics()
    certificates = CertificateMetrics(metrics)
    certificates.note(client=folder / config.tls.certificate, ca=folder / config.tls.ca)
    listener = folder / public.certificate
    tls = ServerTls(lambda: certificates.loaded(server_context(listener, folder / public.key), listener=listener))
    async with open_abby(config, folder, metrics, local) as (app, reload):
        limits = Limits(
            header_timeout_ms=config.header_timeout,
            max_connections=config.max_connections,
            max_connections_per_address=config.max_connections_per_address,
        )
        yield Service(PROGRAM, app, config.listen, tls, limits, grace_ms=config.shutdown_grace_period, reload=reload)


async def _serve(config: AbbyConfig, folder: Path) -> None:
    async with open_service(config, folder) as service:
        tune_gc()
        await serve_until_stopped(service)


def run_abby(folder: Path) -> int:
    """Run abby with the configuration in the folder until SIGTERM; return the exit code."""
    config = read(folder / PATH, AbbyConfig)
    start_logging(PROGRAM, config.log.level)
    require_known_answers(PROGRAM, BASIC, CRYPTOGRAPHY, PASSWORDS)
    uvloop.run(_serve(config, folder.resolve()))
    return 0


async def offer_openid_login(
    stack: AsyncExitStack, visitors: VisitorSessions, config: ConsoleConfig, folder: Path
) -> None:
    """Enable the OpenID login if it is configured; its connections end with the stack."""
    provider = config.open_id_connect
    if provider is None:
        return
    settings = OpenIdSettings(
        issuer=provider.issuer,
        client_id=provider.client_id,
        client_secret=_read_secret(folder / provider.client_secret_file),
        roles={value: Role(role) for value, role in provider.roles.items()},
        redirect=config.public_url + OPENID_CALLBACK,
        role_claim=provider.role_claim,
        tenants_claim=provider.tenants_claim,
        scopes=provider.scopes,
    )
    trust = ssl.create_default_context(cafile=str(folder / provider.ca) if provider.ca else None)
    connector = aiohttp.TCPConnector(ssl=trust, limit=MAX_PROVIDER_CONNECTIONS)
    http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, trust_env=False))
    visitors.offer_openid(settings, Provider(settings, http), provider.title)


def _read_secret(path: Path) -> str:
    try:
        secret = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigurationError(f"console.openIdConnect.clientSecretFile: {path} cannot be read ({reason}).") from None
    if not secret:
        raise ConfigurationError(f"console.openIdConnect.clientSecretFile: {path} is empty.")
    return secret


def build_list_context(lists: ListService, database: Database, history: History, policy: Policy) -> ListContext:
    entries = EntryStore(database)
    return ListContext(lists, Checker(entries), ImpactEstimator(history, entries, policy))
