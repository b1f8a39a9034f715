"""Puts the scan source `smtp` together: tenants, the next hop, delivery, and the port."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from mailwarden.access.directory import TenantDirectory
from mailwarden.access.tenants import TenantStore
from mailwarden.database.pool import Database
from mailwarden.guard.admission import Admission
from mailwarden.guard.config import GuardConfig
from mailwarden.guard.delivery import Delivery
from mailwarden.guard.delivery_headers import ResultSeal
from mailwarden.guard.next_hop import NextHop
from mailwarden.guard.passes import Passes
from mailwarden.guard.processing import Processing
from mailwarden.guard.quarantine import start_quarantine
from mailwarden.guard.sources.smtp import Smtp
from mailwarden.guard.sources.smtp_listener import SmtpListener, greeting_name
from mailwarden.learning.contents import read_contents_key
from mailwarden.quarantine.bypass import BypassSeal
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.serving.spool import prepare_spool
from mailwarden.telemetry.metrics import Metrics


@asynccontextmanager
async def assembled_smtp(
    config: GuardConfig,
    folder: Path,
    *,
    guard: str,
    admission: Admission,
    processing: Processing,
    database: Database,
    metrics: Metrics,
) -> AsyncIterator[Callable[[], None]]:
    """Listen for Postfix until the block ends, where the configuration says so; yield what closes the doors."""
    settings = config.scan_sources.smtp
    if settings is None:
        yield lambda: None
        return
    patience, name = config.analysis_timeout / 1000, greeting_name(guard)
    async with AsyncExitStack() as stack:
        tenants = TenantDirectory(TenantStore(database))
        stack.push_async_callback(tenants.stop)
        await tenants.start()
        hop = NextHop(settings.next_hop_address, settings.next_hop_timeout / 1000, name)
        stack.callback(hop.close)
        key = read_contents_key(folder / config.contents.key)
        keeper = start_quarantine(config, folder, key=key, database=database, hop=hop, stack=stack)
        source = Smtp(
            settings,
            admission=admission,
            processing=processing,
            tenants=tenants,
            delivery=Delivery(hop, ResultSeal(key), keeper, metrics),
            passes=Passes(BypassSeal(key), ReleaseStore(database)),
            spool=prepare_spool(folder / config.spool),
            analysis_timeout=patience,
        )
        listener = SmtpListener(source, name, patience, metrics)
        stack.push_async_callback(listener.stop, config.shutdown_grace_period / 1000)
        await listener.start()
        yield listener.close_doors
