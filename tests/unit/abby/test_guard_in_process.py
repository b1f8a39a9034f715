"""A guard in abby's process: the same results and errors as over HTTPS, and never a result without a scan."""

import asyncio
from contextlib import aclosing
from uuid import UUID

import pytest

from mailwarden.abby.guard_client import GuardClient, form_of
from mailwarden.abby.guard_http import result_in
from mailwarden.abby.guard_in_process import InProcessTransport, early_error
from mailwarden.abby.guard_transport import Died, Refused, ScanRequest
from mailwarden.abby.guards import Guard, GuardWatch
from mailwarden.errors import (
    AnalysisTimeout,
    CoreError,
    EngineUnavailable,
    InternalError,
    MailwardenError,
    Overloaded,
    ScanningDisabled,
    ShuttingDown,
)
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.serving.errors import STATUS_OF, answer_for
from mailwarden.serving.spool import Spooled
from mailwarden.serving.uploads import Keep, Upload
from mailwarden.telemetry.metrics import Metrics
from mailwarden.wire.guard import AnalyzerDone, GuardStatus
from tests.samples.finished import finished_request
from tests.samples.guard_behaviour import FIRST, fail, finish
from tests.tables import every

RAW = b"Subject: x\r\n\r\nhello\r\n"
PARAMETERS = b'{"borderMtaData":{"envelopeFrom":"","envelopeRecipients":["b@acme.example"]}}'
ENVELOPE = Envelope("", ("b@acme.example",))
GROUPS = (RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS), ENVELOPE.recipients),)


class StandIn:
    """A guard that behaves as it is told."""

    def __init__(self, behave):
        self.behave = behave
        self.scans = []

    def status(self):
        return GuardStatus("stand-in", "0", 0, 20, (), database_up=True, scanning_enabled=True)

    def settings(self):
        return ()

    async def scan(self, scan, observe):
        self.scans.append(scan)
        return await self.behave(scan, observe)


async def hang(scan, observe):
    observe(FIRST)
    await asyncio.sleep(60)


async def client_of(*guards):
    watch = GuardWatch([Guard(f"https://g{n}.example", InProcessTransport(each)) for n, each in enumerate(guards)])
    await watch.look()
    return GuardClient(watch, Metrics()), watch


def request():
    return ScanRequest(new_ggrid(), ENVELOPE, GROUPS, "id")


async def submit(behave, seconds=10.0):
    guard = StandIn(behave)
    client, watch = await client_of(guard)
    upload = Upload("multipart/form-data; boundary=b", PARAMETERS, Spooled.of(RAW), None)
    asked = request()
    try:
        return asked, await client.submit(upload, asked, asyncio.get_running_loop().time() + seconds), guard
    except MailwardenError as error:
        return asked, error, guard
    finally:
        assert watch.guards[0].in_flight == 0


async def watched(behave, seconds=10.0):
    client, watch = await client_of(StandIn(behave))
    steps, error = [], None
    deadline = asyncio.get_running_loop().time() + seconds
    going = client.watch(form_of(Spooled.of(RAW), PARAMETERS), request(), deadline, stored=False)
    try:
        async with aclosing(going):
            async for step in going:
                steps.append(step)
    except MailwardenError as raised:
        error = raised
    assert watch.guards[0].in_flight == 0
    return steps, error


async def test_the_scan_has_the_values_of_the_request():
    asked, result, guard = await submit(finish)
    (scan,) = guard.scans
    assert (scan.ggrid, scan.envelope, scan.groups) == (asked.ggrid, ENVELOPE, GROUPS)
    assert (scan.message.data(), scan.stored, 9.0 < scan.seconds <= 10.0) == (RAW, True, True)
    assert scan.size > len(RAW) + len(PARAMETERS)
    expected = finished_request()
    assert result.ggrid == asked.ggrid
    assert (result.verdict, result.decision) == (expected.judgement.verdict, expected.ruling.decision)
    assert result.tags == expected.tags


def test_an_error_means_the_same_as_its_response():
    def check(kind):
        ggrid = new_ggrid()
        for error in (kind("no"), kind("no", retry_after=4)):
            response = answer_for(error)
            assert isinstance(response.body, bytes)
            pause = response.headers.get("Retry-After")
            with pytest.raises(Exception) as caught:  # noqa: PT011 - the type is compared below
                result_in(response.status, response.body, ggrid, int(pause) if pause else None)
            over_https, local = caught.value, early_error(error)
            assert type(local) is type(over_https)
            if isinstance(local, (Refused, Died)) and isinstance(over_https, (Refused, Died)):
                assert type(local.error) is type(over_https.error)
                assert str(local.error) == str(over_https.error)
                assert local.error.retry_after == over_https.error.retry_after
            if isinstance(local, Died) and isinstance(over_https, Died):
                assert local.kind == over_https.kind

    every([kind for kind in STATUS_OF if kind.__init__ is MailwardenError.__init__], check)


@pytest.mark.parametrize("kind", [Overloaded, EngineUnavailable, ScanningDisabled, ShuttingDown])
async def test_a_rejection_reaches_the_caller_after_one_try(kind):
    _, error, guard = await submit(fail(kind("no", retry_after=3)))
    assert (type(error), error.retry_after, len(guard.scans)) == (kind, 3, 1)


async def test_a_failed_scan_is_tried_twice_and_is_no_result():
    _, error, guard = await submit(fail(InternalError("bug")))
    assert (type(error), len(guard.scans)) == (CoreError, 2)


async def test_the_deadline_ends_the_scan():
    _, error, guard = await submit(hang, seconds=0.05)
    assert (type(error), len(guard.scans)) == (AnalysisTimeout, 1)


async def test_a_watched_analysis_has_its_steps_and_the_stored_record():
    steps, error = await watched(finish)
    assert error is None
    assert steps[0] == AnalyzerDone("structure", "finished", 0.5, 1, True)
    assert isinstance(steps[-1], FinishedRequest)
    assert len(steps) == 2


@pytest.mark.parametrize(
    ("behave", "seconds", "expected"),
    [
        (fail(Overloaded("full")), 60.0, Overloaded),
        (fail(InternalError("bug")), 60.0, CoreError),
        (fail(RuntimeError("bug")), 60.0, CoreError),
        (hang, 0.05, AnalysisTimeout),
        (fail(EngineUnavailable("Rspamd is down."), FIRST), 60.0, EngineUnavailable),
        (fail(RuntimeError("bug"), FIRST), 60.0, CoreError),
    ],
)
async def test_a_watched_analysis_that_fails_has_an_error_and_no_result(behave, seconds, expected):
    steps, error = await watched(behave, seconds)
    assert type(error) is expected
    assert not any(isinstance(step, FinishedRequest) for step in steps)


async def test_abby_keeps_the_message_alone_if_a_guard_is_in_its_process():
    client, watch = await client_of(StandIn(finish))
    assert client.keep is Keep.EMAIL
    assert watch.guards[0].usable
