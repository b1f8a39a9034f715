"""guard's source for an abby in its process: admission, errors and metrics as on its port."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from mailwarden.errors import EngineUnavailable, InternalError, Overloaded, ScanningDisabled
from mailwarden.guard.admission import Admission
from mailwarden.guard.sources.in_process import InProcess
from mailwarden.guard.sources.rest_api import RestApi
from mailwarden.model.envelope import Envelope
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.serving.http_app import HttpApp
from mailwarden.serving.local_guard import LocalScan
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.tracing import NO_TRACING
from tests.samples.finished import finished_request

ENVELOPE = Envelope("", ("b@acme.example",))
GROUPS = (RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS), ENVELOPE.recipients),)
COUNTED = 'mailwarden_http_requests_total{route="/v1/messageQueue/submitEmail",status="%d"} 1.0'


class Processing:
    """Stands for the analysis: it answers, fails or waits."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.requests: list[Any] = []
        self.resume = asyncio.Event()
        self.resume.set()

    async def process(self, request, observe):
        self.requests.append(request)
        await self.resume.wait()
        if self.error:
            raise self.error
        return finished_request(ggrid=request.ggrid)


def scan_of(size: int = 100, seconds: float = 5.0) -> LocalScan:
    return LocalScan(UUID(int=7), ENVELOPE, GROUPS, Spooled.of(b"a: b\r\n\r\n"), size, seconds, True, "")


def source(processing: Processing | None, tmp_path, **limits):
    admission = Admission(**{"maximum": 1, "threshold": 1, "max_delay": 0.0, "max_bytes": 1_000, **limits})
    api = None if processing is None else RestApi(admission, cast("Any", processing), tmp_path, 3.0, NO_TRACING)
    metrics = Metrics()
    guard = InProcess(api, HttpApp([], metrics), cast("Any", SimpleNamespace), lambda: b"[]")
    return guard, metrics


async def scan(guard, **changes):
    return await guard.scan(scan_of(**changes), lambda _: None)


async def test_a_scan_is_processed_and_counted(tmp_path):
    processing = Processing()
    guard, metrics = source(processing, tmp_path)
    assert (await scan(guard)).ggrid == UUID(int=7)
    (request,) = processing.requests
    assert (request.source, request.envelope, request.groups) == ("restApi", ENVELOPE, GROUPS)
    assert (request.deadline, request.stored) == (3.0, True)
    assert COUNTED % 200 in metrics.page().decode()
    await scan(guard, seconds=0.5)
    assert processing.requests[1].deadline == 0.5


@pytest.mark.parametrize(
    ("error", "expected", "status"),
    [(EngineUnavailable("down"), EngineUnavailable, 503), (RuntimeError("bug"), InternalError, 500)],
)
async def test_an_error_is_raised_and_counted(error, expected, status, tmp_path):
    guard, metrics = source(Processing(error), tmp_path)
    with pytest.raises(expected):
        await scan(guard)
    assert COUNTED % status in metrics.page().decode()


async def test_without_rest_api_every_message_is_rejected(tmp_path):
    guard, metrics = source(None, tmp_path)
    with pytest.raises(ScanningDisabled) as caught:
        await scan(guard)
    assert caught.value.retry_after == 300
    assert COUNTED % 503 in metrics.page().decode()


async def test_a_full_guard_rejects_the_message(tmp_path):
    processing = Processing()
    guard, _ = source(processing, tmp_path)
    processing.resume.clear()
    first = asyncio.create_task(scan(guard))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await scan(guard)
    processing.resume.set()
    await first
    assert (await scan(guard)).ggrid == UUID(int=7)
    assert len(processing.requests) == 2


async def test_the_bytes_of_the_upload_are_reserved(tmp_path):
    guard, _ = source(Processing(), tmp_path)
    with pytest.raises(Overloaded):
        await scan(guard, size=1_001)
