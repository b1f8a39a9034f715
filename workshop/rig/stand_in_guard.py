"""A guard with its real listener, admission and protocols, whose analysis is a function of the caller."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import cast

import msgspec
from aiohttp import web

from mailwarden.cli.certificates import make_certificates
from mailwarden.guard.sources.abby import RestApi
from mailwarden.guard.sources.in_process import InProcess
from mailwarden.hop.records import GUARD_STATUS_PATH, SUBMIT_PATH, GuardStatus
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.pipeline.examination import Observer, ignore
from mailwarden.scan.admission import Admission
from mailwarden.scan.scan import Processing
from mailwarden.serving.http_app import Call, HttpApp, Route
from mailwarden.serving.server import Limits, serving
from mailwarden.serving.tls import ABBY_NAME, ClientNames, client_context, server_context
from mailwarden.settings.shared import Listen
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.tracing import NO_TRACING

Analysis = Callable[[Scan, Observer], Awaitable[FinishedRequest]]


class StandInProcessing:
    """The analysis; it has the message of every request in memory."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.scans: list[Scan] = []
        self.messages: list[bytes] = []

    async def answer(self, scan: Scan, observe: Observer = ignore) -> FinishedRequest:
        self.scans.append(scan)
        self.messages.append(scan.message.data())
        return await self.analysis(scan, observe)


@dataclass(frozen=True, slots=True)
class StandInGuard:
    """A running guard; `local` calls it without a connection."""

    port: int
    processing: StandInProcessing
    admission: Admission
    app: HttpApp
    local: InProcess

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self.port}"


def make_stand_in_certificates(folder: Path) -> Path:
    """Make the certificates of abby and guard in the folder, once."""
    if not (folder / "ca.crt").exists():
        make_certificates(folder, ["127.0.0.1", "localhost"])
    return folder


@asynccontextmanager
async def stand_in_guard(
    certificates: Path,
    spool: Path,
    analysis: Analysis,
    *,
    maximum: int = 64,
    max_bytes: int = 2**30,
    client: str = ABBY_NAME,
) -> AsyncIterator[StandInGuard]:
    """Run a guard on a port of the loopback."""
    processing = StandInProcessing(analysis)
    admission = Admission(maximum=maximum, threshold=maximum, max_delay=0.0, max_bytes=max_bytes)
    api = RestApi(admission, cast("Processing", processing), spool, NO_TRACING)
    started = time.monotonic()

    def status() -> GuardStatus:
        name = f"stand-in {started}"
        return GuardStatus(name, "0", admission.in_processing, maximum, (), database_up=True, scanning_enabled=True)

    async def show_status(_: Call) -> web.StreamResponse:
        return web.Response(body=msgspec.json.encode(status()), content_type="application/json")

    routes = [Route("GET", GUARD_STATUS_PATH, show_status, quiet=True), Route("POST", SUBMIT_PATH, api.submit)]
    names = ClientNames((client,), "tls.clientNames in guard.yml")
    app = HttpApp(routes, Metrics(), clients=names, ends_with_caller=True)
    tls = server_context(certificates / "guard.crt", certificates / "guard.key", certificates / "ca.crt")
    limits = Limits()
    async with serving(app, Listen(), tls, limits, grace_ms=100) as taken:
        local = InProcess(api, app, status, lambda: b"[]")
        yield StandInGuard(taken, processing, admission, app, local)


def abby_context(certificates: Path) -> SSLContext:
    """Return the context of abby."""
    return client_context(certificates / "ca.crt", certificates / "abby.crt", certificates / "abby.key")
