"""The scan source `restApi` without HTTP: for abby in the same process, with the same admission, errors and metrics."""

import time
from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec

from mailwarden.errors import InternalError, MailwardenError, ScanningDisabled
from mailwarden.guard.context import PROGRAM
from mailwarden.guard.sources.abby import RestApi
from mailwarden.hop.local_guard import Observer
from mailwarden.hop.records import SUBMIT_PATH, GuardStatus
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.serving.errors import status_of
from mailwarden.serving.http_app import HttpApp
from mailwarden.settings.effective import Setting
from mailwarden.telemetry.logs import get_logger, logging_as

DISABLED_SECONDS = 300  # Retry-After: an operator must change the configuration first

log = get_logger(__name__)
_decode_settings = msgspec.json.Decoder(list[Setting]).decode


def scanning_disabled() -> ScanningDisabled:
    sentence = "Scanning is disabled: guard.yml has no scanSources.restApi. An operator has to enable it."
    return ScanningDisabled(sentence, retry_after=DISABLED_SECONDS)


class InProcess:
    """Implements `LocalGuard`; without `scanSources.restApi` it rejects every message."""

    def __init__(
        self, api: RestApi | None, app: HttpApp, status: Callable[[], GuardStatus], settings: Callable[[], bytes]
    ) -> None:
        self._api = api
        self._app = app
        self.status = status
        self._settings = settings

    def settings(self) -> Sequence[Setting]:
        return _decode_settings(self._settings())

    async def scan(self, scan: Scan, observe: Observer, traceparent: str) -> FinishedRequest:
        """Scan a message, and count it as a request of the same route and status."""
        began, status = time.perf_counter(), HTTPStatus.INTERNAL_SERVER_ERROR
        with logging_as(PROGRAM):
            try:
                finished = await self._scan(scan, observe, traceparent)
                status = HTTPStatus.OK
            except MailwardenError as error:
                status = status_of(error)
                raise
            except Exception:
                log.exception("request_failed")
                raise InternalError("Something went wrong on our side; guard's log has it.") from None
            finally:
                self._app.count(SUBMIT_PATH, status, time.perf_counter() - began)
        return finished

    async def _scan(self, scan: Scan, observe: Observer, traceparent: str) -> FinishedRequest:
        if self._api is None:
            raise scanning_disabled()
        return await self._api.scan(scan, observe, traceparent)
