"""The listeners of the scan sources `rspamdApi` and `stalwartHook`, each on its own port."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from mailwarden.crypto.keyring import read_ring
from mailwarden.guard.config import RspamdApi as RspamdApiSettings
from mailwarden.guard.config import StalwartHook as StalwartHookSettings
from mailwarden.guard.context import GuardContext
from mailwarden.guard.result_headers import ResultSeal
from mailwarden.guard.sources import rspamd_api, stalwart_hook
from mailwarden.guard.sources.http_source import MAX_HEAD, MAX_HEADERS, HttpSourceContext, PerTenantScan
from mailwarden.guard.sources.rspamd_api import RspamdApi
from mailwarden.guard.sources.stalwart_hook import StalwartHook
from mailwarden.serving.http_app import ErrorAnswer, HttpApp
from mailwarden.serving.server import Limits, serving


class HttpListeners:
    """Builds the server of each source from the parts that they share."""

    def __init__(self, context: GuardContext) -> None:
        self._context = context
        self._seal = ResultSeal(read_ring(context.folder / context.config.contents.key, "contents.key"))
        self.open: list[HttpApp] = []

    def rspamd_api(self, settings: RspamdApiSettings) -> HttpApp:
        source = RspamdApi(settings, self._source_context(RspamdApi.name, settings.quarantine_as))
        return self._server(source, "rspamd_api", rspamd_api.answer_error)

    def stalwart_hook(self, settings: StalwartHookSettings) -> HttpApp:
        source = StalwartHook(settings, self._source_context(StalwartHook.name, settings.quarantine_as))
        return self._server(source, "stalwart_hook", stalwart_hook.answer_error)

    def _server(self, source: RspamdApi | StalwartHook, meters: str, answer_error: ErrorAnswer) -> HttpApp:
        server = HttpApp(
            source.routes(), self._context.metrics, meters=meters, max_head=MAX_HEAD, answer_for=answer_error
        )
        self.open.append(server)
        return server

    def _source_context(self, source: str, quarantine_as: str) -> HttpSourceContext:
        context = self._context
        timeout = context.config.analysis_timeout / 1000
        scanner = PerTenantScan(
            source,
            processing=context.processing,
            tenants=context.tenants,
            timeout=timeout,
            quarantine_as=quarantine_as,
        )
        return HttpSourceContext(context.admission, scanner, self._seal, context.spool)

    def close(self) -> None:
        """Accept no new message; running scans are completed."""
        for server in self.open:
            server.close()


@asynccontextmanager
async def open_http_sources(context: GuardContext) -> AsyncIterator[Callable[[], None]]:
    """Listen until the block ends, if configured; yield the function that closes the listeners."""
    api, hook = context.config.scan_sources.rspamd_api, context.config.scan_sources.stalwart_hook
    if api is None and hook is None:
        yield lambda: None
        return
    listeners, grace = HttpListeners(context), context.config.shutdown_grace_period
    async with AsyncExitStack() as stack:
        if api is not None:
            await stack.enter_async_context(_serving(listeners.rspamd_api(api), api, grace))
        if hook is not None:
            await stack.enter_async_context(_serving(listeners.stalwart_hook(hook), hook, grace))
        yield listeners.close


def _serving(
    server: HttpApp, settings: RspamdApiSettings | StalwartHookSettings, grace_ms: int
) -> AbstractAsyncContextManager[int]:
    limits = Limits(max_connections=settings.max_connections, max_headers=MAX_HEADERS)
    return serving(server, settings.listen, None, limits, grace_ms=grace_ms)
