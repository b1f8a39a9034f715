"""The listener of the scan source `rspamdApi`, on its own port."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from mailwarden.crypto.keyring import read_ring
from mailwarden.guard.context import GuardContext
from mailwarden.guard.sources.http_source import MAX_HEAD, MAX_HEADERS, HttpSourceContext, PerTenantScan
from mailwarden.guard.sources.rspamd_api import RspamdApi, answer_error
from mailwarden.quarantine.result_headers import ResultSeal
from mailwarden.serving.http_app import HttpApp
from mailwarden.serving.server import Limits, serving


@asynccontextmanager
async def open_rspamd_api(context: GuardContext) -> AsyncIterator[Callable[[], None]]:
    """Listen until the block ends, if configured; yield the function after which no new message is accepted."""
    config, settings = context.config, context.config.scan_sources.rspamd_api
    if settings is None:
        yield lambda: None
        return
    scanner = PerTenantScan(
        RspamdApi.name,
        processing=context.processing,
        tenants=context.tenants,
        timeout=config.analysis_timeout / 1000,
        quarantine_as=settings.quarantine_as,
    )
    seal = ResultSeal(read_ring(context.folder / config.contents.key, "contents.key"))
    source = RspamdApi(settings, HttpSourceContext(context.admission, scanner, seal, context.spool))
    app = HttpApp(source.routes(), context.metrics, meters="rspamd_api", max_head=MAX_HEAD, answer_for=answer_error)
    limits = Limits(max_connections=settings.max_connections, max_headers=MAX_HEADERS)
    async with serving(app, settings.listen, None, limits, grace_ms=config.shutdown_grace_period):
        yield app.close
