"""An analysis that somebody watches, from guard's lines to abby's steps, over real connections."""

import asyncio
import ssl
from contextlib import AsyncExitStack, aclosing
from typing import cast

import msgspec
import pytest
from aiohttp import web

from mailwarden.abby.submit import MAX_WATCHED, WatchedAnalyses
from mailwarden.access.tenants import TenantDirectory
from mailwarden.errors import (
    CoreError,
    CoreUnreachable,
    EngineUnavailable,
    MailwardenError,
    Overloaded,
)
from mailwarden.guard.sources.abby import answer_with_progress
from mailwarden.hop.client import GuardClient
from mailwarden.hop.guard_choice import LeastLoadedOfTwo
from mailwarden.hop.guards import Guard, GuardWatch
from mailwarden.hop.https import HttpTransport, open_session
from mailwarden.hop.records import GUARD_STATUS_PATH, SUBMIT_PATH, AnalyzerDone, GuardStatus
from mailwarden.hop.scan_body import receive_scan
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Failure, FailureKind, Finding, Report, Status
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.serving.http_app import HttpApp, Route
from mailwarden.serving.server import Limits, serving
from mailwarden.serving.spool import Spooled
from mailwarden.settings.shared import Listen
from mailwarden.telemetry.metrics import Metrics
from mailwarden.wire.scanning import ScanParameters
from tests.samples.finished import finished_request

TENANT = finished_request().tenant
RAW = b"Subject: x\r\n\r\nhello\r\n"
PARAMETERS = ScanParameters(Envelope("a@sender.example", ("b@acme.example",)))
FIRST = Report("structure", True, Status.FINISHED, 0.5, (Finding("structure.ambiguous"),))
FAILED = Report(
    "rspamd", True, Status.FAILED, 20.0, failure=Failure("rspamd", FailureKind.TIMEOUT, "Too slow."), engine="rspamd/3"
)


class OneTenant:
    def group(self, tenant_uid, recipients):
        return (RecipientGroup(Assignment(TENANT, AssignedBy.DEFAULT), tuple(recipients)),)


class StandIn:
    """A guard whose analysis does as it is told: reports, then an end."""

    def __init__(self, tmp_path, work, busy=0):
        self.tmp_path = tmp_path
        self.work = work
        self.busy = busy
        self.received = []
        self.heads = []

    def app(self):
        return HttpApp(
            [Route("GET", GUARD_STATUS_PATH, self.status), Route("POST", SUBMIT_PATH, self.submit)], Metrics()
        )

    async def status(self, call):
        status = GuardStatus("stand-in", "0", self.busy, 20, (), database_up=True, scanning_enabled=True)
        return web.Response(body=msgspec.json.encode(status))

    async def submit(self, call):
        head, message = await receive_scan(call.request, self.tmp_path, body_timeout_ms=5_000)
        self.heads.append(head)
        self.received.append((head.envelope, message.data()))
        return await answer_with_progress(call, lambda observe: self.work(call, head.ggrid, observe))


async def finish(call, ggrid, observe):
    observe(FIRST)
    observe(FAILED)
    return finished_request(ggrid=ggrid, tenant=TENANT)


def end_with(error, *reports):
    async def work(call, ggrid, observe):
        for report in reports:
            observe(report)
        await asyncio.sleep(0.05)
        raise error

    return work


def disconnect(*reports):
    async def work(call, ggrid, observe):
        for report in reports:
            observe(report)
        await asyncio.sleep(0.05)
        call.request.transport.abort()
        await asyncio.sleep(0.05)
        return finished_request(ggrid=ggrid)

    return work


async def answer_another(call, ggrid, observe):
    observe(FIRST)
    return finished_request()


@pytest.fixture
async def watching(tmp_path):
    """Return a function that has a message analyzed by guards that work so, busier from left to right."""
    async with AsyncExitStack() as stack:

        async def watch(*works, timeout_ms=10_000, message=RAW, scope=None, stored=True):
            guards = [StandIn(tmp_path, work, busy) for busy, work in enumerate(works)]
            addresses = []
            for guard in guards:
                port = await stack.enter_async_context(serving(guard.app(), Listen(), None, Limits(), grace_ms=10))
                addresses.append(f"http://127.0.0.1:{port}")
            session = await stack.enter_async_context(open_session(ssl.create_default_context()))
            watch = GuardWatch([Guard(address, HttpTransport(session, address)) for address in addresses])
            await watch.look()
            client = GuardClient(watch, Metrics(), chooser=LeastLoadedOfTwo(choices=len(addresses)))
            analyses = WatchedAnalyses(client, cast("TenantDirectory", OneTenant()), long_request_timeout_ms=timeout_ms)
            steps = []
            error = None
            try:
                scope = scope or Scope.deployment()
                going = analyses.watch(scope, Spooled.of(message), PARAMETERS, stored=stored, request_id="id")
                async with aclosing(going):
                    async for step in going:
                        steps.append(step)
            except MailwardenError as raised:
                error = raised
            assert all(guard.in_flight == 0 for guard in watch.guards)
            return steps, error, guards

        yield watch


@pytest.mark.parametrize("first", [end_with(Overloaded("full")), end_with(RuntimeError("bug")), disconnect()])
async def test_before_the_first_line_another_guard_is_asked(watching, first):
    steps, error, guards = await watching(first, finish)
    assert error is None
    assert isinstance(steps[-1], FinishedRequest)
    assert [len(guard.received) for guard in guards] == [1, 1]


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (end_with(EngineUnavailable("Rspamd is down."), FIRST), EngineUnavailable),
        (end_with(RuntimeError("bug"), FIRST), CoreError),
        (disconnect(FIRST), CoreUnreachable),
        (answer_another, CoreError),
    ],
)
async def test_after_the_first_line_trouble_is_an_error_and_never_a_result(watching, work, expected):
    steps, error, guards = await watching(work, finish)
    assert type(error) is expected
    assert [step.analyzer for step in steps] == ["structure"]
    assert not guards[1].received


async def test_a_disconnected_caller_frees_its_slot():
    class Endless:
        def require_room(self):
            pass

        async def watch(self, *_, **__):
            while True:
                yield AnalyzerDone("structure", "finished", 1.0, 0, True)

    analyses = WatchedAnalyses(
        cast("GuardClient", Endless()), cast("TenantDirectory", OneTenant()), long_request_timeout_ms=1_000
    )
    for _ in range(MAX_WATCHED + 1):
        going = analyses.watch(Scope.deployment(), Spooled.of(RAW), PARAMETERS, stored=True, request_id="id")
        async with aclosing(going):
            assert await anext(going)
    held = [
        analyses.watch(Scope.deployment(), Spooled.of(RAW), PARAMETERS, stored=True, request_id="id")
        for _ in range(MAX_WATCHED + 1)
    ]
    for going in held[:-1]:
        await anext(going)
    with pytest.raises(Overloaded):
        await anext(held[-1])
    for going in held:
        await going.aclose()
