"""Guards that reject, disconnect, delay or return malformed answers, over real connections."""

import asyncio
import contextlib
import ssl
import time
from contextlib import AsyncExitStack, closing

import msgspec
import pytest
from aiohttp import web

from mailwarden.errors import (
    CoreError,
    CoreUnreachable,
    EngineUnavailable,
    MailwardenError,
    Overloaded,
    ScanningDisabled,
    ShuttingDown,
)
from mailwarden.hop import https
from mailwarden.hop.client import GuardClient
from mailwarden.hop.guard_choice import LeastLoadedOfTwo
from mailwarden.hop.guards import Guard, GuardWatch
from mailwarden.hop.https import HttpTransport, open_session
from mailwarden.hop.records import GUARD_STATUS_PATH, SUBMIT_PATH, GuardStatus
from mailwarden.hop.scan_body import receive_scan
from mailwarden.hop.transport import Died
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.serving.http_app import HttpApp, Route
from mailwarden.serving.server import Limits, serving
from mailwarden.serving.spool import SpoolWriter
from mailwarden.settings.shared import Listen
from mailwarden.telemetry.metrics import Metrics

ASSIGNMENT = Assignment(new_ggrid(), AssignedBy.DEFAULT)
ENVELOPE = Envelope("", ("b@acme.example",))


class StandIn:
    """A guard that behaves as it is told."""

    def __init__(self, tmp_path, behave, busy=0):
        self.behave = behave
        self.busy = busy
        self.tmp_path = tmp_path
        self.asked = 0
        self.ggrids = []
        self.received = []

    def app(self):
        return HttpApp(
            [Route("GET", GUARD_STATUS_PATH, self.status), Route("POST", SUBMIT_PATH, self.submit)], Metrics()
        )

    async def status(self, call):
        status = GuardStatus("stand-in", "0", self.busy, 20, (), database_up=True, scanning_enabled=True)
        return web.Response(body=msgspec.json.encode(status))

    async def submit(self, call):
        self.asked += 1
        return await self.behave(self, call)

    async def receive(self, call):
        head, message = await receive_scan(call.request, self.tmp_path, body_timeout_ms=5_000)
        self.ggrids.append(head.ggrid)
        self.received.append(message.data())
        message.close()
        return str(head.ggrid)


async def answer(guard, call):
    ggrid = await guard.receive(call)
    moment = "2026-01-01T00:00:00Z"
    result = {"ggrid": ggrid, "created": moment, "completed": moment, "decision": "deliver", "verdict": "clean"}
    return web.Response(body=msgspec.json.encode(result | {"tags": []}))


def refuse(error):
    async def behave(guard, call):
        raise error("no", retry_after=4)

    return behave


async def disconnect(guard, call):
    await guard.receive(call)
    call.request.transport.abort()
    await asyncio.sleep(0.1)
    return web.Response()


async def delay_answer(guard, call):
    await guard.receive(call)
    await asyncio.sleep(5)
    return web.Response()


async def answer_malformed(guard, call):
    await guard.receive(call)
    return web.Response(text="<html>")


async def send_partial_answer(guard, call):
    await guard.receive(call)
    response = web.StreamResponse(headers={"Content-Length": "500"})
    await response.prepare(call.request)
    await response.write(b'{"ggrid"')
    call.request.transport.abort()
    return response


@pytest.fixture
async def run(tmp_path):
    """Return a function that submits one message to guards of the given behaviours, busier from left to right."""
    async with AsyncExitStack() as stack:

        async def submit(*behaviours, message=b"Subject: x\r\n\r\n", patience=10.0, absent=0):
            guards = [StandIn(tmp_path, behave, busy) for busy, behave in enumerate(behaviours)]
            addresses = ["http://127.0.0.1:1"] * absent
            for guard in guards:
                limits = serving(guard.app(), Listen(), None, Limits(), grace_ms=10)
                addresses.append(f"http://127.0.0.1:{await stack.enter_async_context(limits)}")
            session = await stack.enter_async_context(open_session(ssl.create_default_context()))
            watch = GuardWatch([Guard(address, HttpTransport(session, address)) for address in addresses])
            await watch.look()
            spooled = await make_message(message, tmp_path)
            stack.callback(spooled.close)
            client = GuardClient(watch, Metrics(), chooser=LeastLoadedOfTwo(choices=len(addresses)))
            call = client.submit(scan_for(spooled, patience))
            outcome: object
            try:
                outcome = msgspec.json.decode(await call)
            except MailwardenError as error:
                outcome = error
            assert all(guard.in_flight == 0 for guard in watch.guards)
            return outcome, guards

        yield submit


def scan_for(message, patience):
    groups = (RecipientGroup(ASSIGNMENT, ENVELOPE.recipients),)
    return Scan("restApi", ENVELOPE, groups, message, deadline=time.monotonic() + patience, request_id="id")


async def make_message(message, tmp_path):
    writer = SpoolWriter(tmp_path)
    await writer.write(message)
    return await writer.finish()


def asked(guards):
    return [guard.asked for guard in guards]


@pytest.mark.parametrize("error", [Overloaded, ShuttingDown, ScanningDisabled, EngineUnavailable])
async def test_a_refusal_leads_to_the_next_guard(run, error):
    outcome, guards = await run(refuse(error), refuse(error), refuse(error), answer)
    assert (outcome["verdict"], asked(guards)) == ("clean", [1, 1, 1, 1])
    assert len({ggrid for guard in guards for ggrid in guard.ggrids}) == 1


async def test_all_refusing_is_a_refusal_with_the_guards_pause(run):
    outcome, guards = await run(refuse(ShuttingDown), refuse(Overloaded))
    assert (type(outcome), outcome.retry_after, asked(guards)) == (Overloaded, 4, [1, 1])


@pytest.mark.parametrize("fail", [disconnect, send_partial_answer, answer_malformed])
async def test_the_message_goes_to_a_second_guard_but_never_to_a_third(run, fail):
    outcome, guards = await run(fail, answer)
    assert (outcome["verdict"], asked(guards)) == ("clean", [1, 1])
    outcome, guards = await run(fail, fail, answer)
    assert isinstance(outcome, CoreError if fail is answer_malformed else CoreUnreachable)
    assert asked(guards) == [1, 1, 0]


async def test_the_only_guard_gets_the_second_try(run):
    outcome, guards = await run(disconnect, absent=1)
    assert (type(outcome), asked(guards)) == (CoreUnreachable, [2])


@pytest.mark.parametrize("status_answered", [False, True])
async def test_only_a_guard_that_is_silent_loses_its_message(monkeypatch, tmp_path, status_answered):
    monkeypatch.setattr(https, "SILENT_SECONDS", 0.3)

    class Hanging(StandIn):
        async def status(self, call):
            return await super().status(call) if status_answered else await asyncio.sleep(60)

    guard = Hanging(tmp_path, delay_answer)
    async with (
        serving(guard.app(), Listen(), None, Limits(), grace_ms=10) as port,
        open_session(ssl.create_default_context()) as session,
    ):
        transport = HttpTransport(session, f"http://127.0.0.1:{port}")
        with closing(await make_message(b"Subject: x\r\n\r\n", tmp_path)) as message:
            submitting = asyncio.create_task(transport.submit(scan_for(message, 60.0), ""))
            for _ in range(10):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await transport.status()
                        await asyncio.sleep(60)
            assert submitting.done() is not status_answered
            submitting.cancel()
            (error,) = await asyncio.gather(submitting, return_exceptions=True)
            assert isinstance(error, asyncio.CancelledError if status_answered else Died)


@pytest.mark.parametrize("size", [300_000, 3_000_000])
async def test_a_large_message_arrives_whole_after_a_refusal_and_a_death(run, size):
    message = bytes(range(256)) * (size // 256)
    outcome, guards = await run(refuse(Overloaded), disconnect, answer, message=message)
    assert (outcome["verdict"], asked(guards)) == ("clean", [1, 1, 1])
    assert guards[0].received == []
    assert guards[2].received == [message]
