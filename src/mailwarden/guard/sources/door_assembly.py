"""Puts the doors for existing installations together: tenants, routes, and a port for each."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from mailwarden.access.directory import TenantDirectory
from mailwarden.access.tenants import TenantStore
from mailwarden.database.pool import Database
from mailwarden.guard.admission import Admission
from mailwarden.guard.config import GuardConfig
from mailwarden.guard.delivery_headers import ResultSeal
from mailwarden.guard.doors_config import RspamdApi as RspamdApiSettings
from mailwarden.guard.doors_config import StalwartHook as StalwartHookSettings
from mailwarden.guard.processing import Processing
from mailwarden.guard.sources import rspamd_api, stalwart_hook
from mailwarden.guard.sources.appraisal import Appraiser
from mailwarden.guard.sources.door import MAX_HEAD, MAX_HEADERS
from mailwarden.guard.sources.rspamd_api import RspamdApi
from mailwarden.guard.sources.stalwart_hook import StalwartHook
from mailwarden.learning.contents import read_contents_key
from mailwarden.serving.front_door import ErrorAnswer, FrontDoor
from mailwarden.serving.server import Limits, serving
from mailwarden.serving.spool import prepare_spool
from mailwarden.telemetry.metrics import Metrics


class Doors:
    """Builds each door from what they share."""

    def __init__(
        self,
        config: GuardConfig,
        folder: Path,
        *,
        admission: Admission,
        processing: Processing,
        database: Database,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._admission = admission
        self._processing = processing
        self._metrics = metrics
        self._seal = ResultSeal(read_contents_key(folder / config.contents.key))
        self._spool = prepare_spool(folder / config.spool)
        self.tenants = TenantDirectory(TenantStore(database))
        self.open: list[FrontDoor] = []

    def rspamd_api(self, settings: RspamdApiSettings) -> FrontDoor:
        source = RspamdApi(
            settings,
            admission=self._admission,
            appraiser=self._appraiser(RspamdApi.name, settings.quarantine_as),
            seal=self._seal,
            spool=self._spool,
        )
        return self._door(source, "rspamd_api", rspamd_api.answer_error)

    def stalwart_hook(self, settings: StalwartHookSettings) -> FrontDoor:
        source = StalwartHook(
            settings,
            admission=self._admission,
            appraiser=self._appraiser(StalwartHook.name, settings.quarantine_as),
            seal=self._seal,
            spool=self._spool,
        )
        return self._door(source, "stalwart_hook", stalwart_hook.answer_error)

    def _door(self, source: RspamdApi | StalwartHook, meters: str, answer_error: ErrorAnswer) -> FrontDoor:
        door = FrontDoor(source.routes(), self._metrics, meters=meters, max_head=MAX_HEAD, answer_for=answer_error)
        self.open.append(door)
        return door

    def _appraiser(self, source: str, quarantine_as: str) -> Appraiser:
        return Appraiser(
            source,
            processing=self._processing,
            tenants=self.tenants,
            patience=self._config.analysis_timeout / 1000,
            quarantine_as=quarantine_as,
        )

    def close(self) -> None:
        """Take no new message; those in hand are finished."""
        for door in self.open:
            door.close()


@asynccontextmanager
async def assembled_doors(
    config: GuardConfig,
    folder: Path,
    *,
    admission: Admission,
    processing: Processing,
    database: Database,
    metrics: Metrics,
) -> AsyncIterator[Callable[[], None]]:
    """Listen until the block ends, where the configuration says so; yield what closes the doors."""
    asked, hooked = config.scan_sources.rspamd_api, config.scan_sources.stalwart_hook
    if asked is None and hooked is None:
        yield lambda: None
        return
    doors = Doors(config, folder, admission=admission, processing=processing, database=database, metrics=metrics)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(doors.tenants.stop)
        await doors.tenants.start()
        if asked is not None:
            await stack.enter_async_context(_serving(doors.rspamd_api(asked), asked, config.shutdown_grace_period))
        if hooked is not None:
            await stack.enter_async_context(_serving(doors.stalwart_hook(hooked), hooked, config.shutdown_grace_period))
        yield doors.close


def _serving(
    door: FrontDoor, settings: RspamdApiSettings | StalwartHookSettings, grace_ms: int
) -> AbstractAsyncContextManager[int]:
    limits = Limits(max_connections=settings.max_connections, max_headers=MAX_HEADERS)
    return serving(door, settings.listen, None, limits, grace_ms=grace_ms, inherits=False)
