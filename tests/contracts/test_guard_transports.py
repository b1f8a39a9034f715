"""What abby may expect of both transports to a guard: a call in one process, and HTTPS."""

import asyncio
import socket
import time
from contextlib import AsyncExitStack
from uuid import UUID

import msgspec
import pytest

from mailwarden.errors import (
    AnalysisTimeout,
    CoreError,
    EngineUnavailable,
    InternalError,
    MailwardenError,
    Overloaded,
    ShuttingDown,
)
from mailwarden.hop import https
from mailwarden.hop.https import HttpTransport, open_session, open_socket
from mailwarden.hop.in_process import InProcessTransport, early_error
from mailwarden.hop.records import MAX_SCAN_HEAD, SCAN_MEDIA_TYPE, SUBMIT_PATH, AnalyzerDone
from mailwarden.hop.scan_body import MAX_SCAN_BODY
from mailwarden.hop.transport import Died, Refused
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import AssignedBy, Assignment, Profile, RecipientGroup
from mailwarden.serving.errors import STATUS_OF
from mailwarden.serving.spool import CHUNK, Spooled, SpoolWriter
from mailwarden.serving.tls import ClientNames
from tests.samples.finished import finished_request
from tests.samples.guard_behaviour import FIRST, fail, finish
from tests.waiting import eventually
from workshop.rig.stand_in_guard import abby_context, make_stand_in_certificates, stand_in_guard

RAW = b"Subject: x\r\n\r\nhello\r\n"
ENVELOPE = Envelope("a@sender.example", ("b@acme.example", "c@club.example"), "192.0.2.7", "mx.example")
GROUPS = (
    RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS, Profile.STRICT, {"html.form": 3}), ("b@acme.example",)),
    RecipientGroup(Assignment(UUID(int=2), AssignedBy.DEFAULT), ("c@club.example",)),
)
WAYS = ("in_process", "https")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_stand_in_certificates(tmp_path_factory.mktemp("certificates"))


class CountedMessage(Spooled):
    """A message that counts how often it is read to be sent in pieces."""

    def __init__(self, spooled, case):
        memory = spooled.data() if spooled.in_memory else None
        super().__init__(memory, -1, 0, spooled.size, whole=True, owner=False)
        self._spooled = spooled
        self._case = case

    def chunks(self, size=CHUNK):
        return self._spooled.chunks(size)

    async def stream(self, size=CHUNK):
        self._case.reads += 1
        async for piece in self._spooled.stream(size):
            yield piece


class Case:
    """A guard, and abby's transport to it."""

    def __init__(self, guard, transport, folder):
        self.guard = guard
        self.transport = transport
        self.reads = 0  # of large messages, to send them
        self._folder = folder

    async def spooled(self, message=RAW):
        writer = SpoolWriter(self._folder)
        await writer.write(message)
        return CountedMessage(await writer.finish(), self)

    async def submit(self, message=RAW, seconds=60.0, ggrid=None):
        scan = await self.scan(message, ggrid=ggrid or new_ggrid(), deadline=time.monotonic() + seconds)
        async with asyncio.timeout(seconds):
            return msgspec.json.decode(await self.transport.submit(scan, ""))

    async def scan(self, message, **values):
        return Scan("restApi", ENVELOPE, GROUPS, await self.spooled(message), request_id="id", **values)

    async def watch(self, message=RAW, *, stored=True):
        """Return the steps and the error after them; errors before the first step are raised."""
        steps: list[AnalyzerDone | FinishedRequest] = []
        scan = await self.scan(message, deadline=time.monotonic() + 60.0, stored=stored, watched=True)
        async with self.transport.watch(scan) as progress:
            try:
                while not steps or not isinstance(steps[-1], FinishedRequest):
                    steps.append(await progress.next())
            except MailwardenError as error:
                return steps, error
        return steps, None


@pytest.fixture
async def open_case(certificates, tmp_path):
    async with AsyncExitStack() as stack:

        async def open_case(way, analysis=finish, **options):
            guard = await stack.enter_async_context(stand_in_guard(certificates, tmp_path, analysis, **options))
            if way == "in_process":
                return Case(guard, InProcessTransport(guard.local), tmp_path)
            session = await stack.enter_async_context(open_session(abby_context(certificates)))
            return Case(guard, HttpTransport(session, guard.address), tmp_path)

        yield open_case


@pytest.mark.parametrize("way", WAYS)
async def test_the_guard_gets_the_values_of_the_request(open_case, way):
    case = await open_case(way)
    ggrid = new_ggrid()
    result = await case.submit(ggrid=ggrid, seconds=60.0)
    (scan,) = case.guard.processing.scans
    assert (scan.ggrid, scan.source, scan.envelope, scan.groups) == (ggrid, "restApi", ENVELOPE, GROUPS)
    assert (case.guard.processing.messages, scan.stored, scan.request_id) == ([RAW], True, "id")
    assert 40.0 < scan.deadline - time.monotonic() <= 60.0
    expected = finished_request()
    assert (result["ggrid"], result["verdict"]) == (str(ggrid), expected.judgement.verdict)
    assert (result["decision"], tuple(result["tags"])) == (expected.ruling.decision, expected.tags)
    assert case.guard.admission.in_processing == 0


@pytest.mark.parametrize("size", [60_000, 262_144, 262_145, 1_000_000, 5_000_000])
async def test_a_message_of_any_size_arrives_byte_for_byte(open_case, size):
    case = await open_case("https")
    message = (RAW + bytes(range(256)) * (size // 256 + 1))[:size]
    await case.submit(message)
    assert case.guard.processing.messages == [message]
    assert case.guard.admission.bytes_in_flight == 0


async def test_an_error_means_the_same_over_both_transports(open_case):
    case = await open_case("https")
    for kind in (kind for kind in STATUS_OF if kind.__init__ is MailwardenError.__init__):
        for error in (kind("no"), kind("no", retry_after=4)):
            case.guard.processing.analysis = fail(error)
            expected = early_error(error)
            with pytest.raises(type(expected)) as caught:
                await case.submit()
            seen = caught.value
            assert type(seen) is type(expected)
            if isinstance(expected, (Refused, Died)) and isinstance(seen, (Refused, Died)):
                assert type(seen.error) is type(expected.error)
                assert (str(seen.error), seen.error.retry_after) == (str(expected.error), expected.error.retry_after)
            if isinstance(expected, Died) and isinstance(seen, Died):
                assert seen.kind == expected.kind


@pytest.mark.parametrize("way", WAYS)
async def test_a_full_guard_rejects_before_it_reads_the_message(open_case, way):
    resume = asyncio.Event()

    async def wait(request, observe):
        await resume.wait()
        return finished_request(ggrid=request.ggrid)

    case = await open_case(way, wait, maximum=1)
    first = asyncio.create_task(case.submit())
    await eventually(lambda: case.guard.admission.in_processing == 1)
    with pytest.raises(Refused) as caught:
        await case.submit(RAW + b"x" * 3_000_000)
    assert case.reads == 0
    assert isinstance(caught.value.error, Overloaded)
    assert 1 <= (caught.value.error.retry_after or 0) <= 5
    assert len(case.guard.processing.messages) == 1
    resume.set()
    await first
    await case.submit()


@pytest.mark.parametrize("way", WAYS)
async def test_bytes_in_flight_are_limited(open_case, way):
    case = await open_case(way, max_bytes=100_000)
    with pytest.raises(Refused) as caught:
        await case.submit(b"x" * 100_001)
    assert isinstance(caught.value.error, Overloaded)


@pytest.mark.parametrize(
    ("headers", "body", "status", "sentence"),
    [
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b--", 415, "through abby"),
        ({"Content-Type": SCAN_MEDIA_TYPE, "Transfer-Encoding": "chunked"}, b"x", 400, "needs Content-Length"),
        ({"Content-Type": SCAN_MEDIA_TYPE, "Content-Length": str(MAX_SCAN_BODY + 1)}, b"", 413, "body of the scan"),
        ({"Content-Type": SCAN_MEDIA_TYPE}, (MAX_SCAN_HEAD + 1).to_bytes(4, "big"), 413, "head of the scan"),
        ({"Content-Type": SCAN_MEDIA_TYPE}, b"\0\0\0\2{}x", 400, "malformed"),
        ({"Content-Type": SCAN_MEDIA_TYPE}, b"", 400, "ends within its head"),
    ],
)
async def test_guard_refuses_a_request_that_abby_never_sends(open_case, certificates, headers, body, status, sentence):
    case = await open_case("https")
    reader, writer = await asyncio.open_connection("127.0.0.1", case.guard.port, ssl=abby_context(certificates))
    fields = {"Host": "guard", "Content-Length": str(len(body)), "Connection": "close", **headers}
    if "Transfer-Encoding" in headers:
        del fields["Content-Length"]
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"POST {SUBMIT_PATH} HTTP/1.1\r\n{head}\r\n".encode() + body)
    async with asyncio.timeout(10):
        answer = (await reader.readuntil(b"}")).decode()
    writer.close()
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert sentence in answer
    assert (case.guard.processing.scans, case.guard.admission.in_processing) == ([], 0)


async def test_a_stopping_guard_rejects_and_finishes(open_case):
    resume = asyncio.Event()

    async def wait(request, observe):
        await resume.wait()
        return finished_request(ggrid=request.ggrid)

    case = await open_case("https", wait)
    first = asyncio.create_task(case.submit())
    await eventually(lambda: case.guard.app.in_hand == 1)
    case.guard.app.close()
    with pytest.raises(Refused) as caught:
        await case.submit()
    assert isinstance(caught.value.error, ShuttingDown)
    stopped = asyncio.create_task(case.guard.app.stop(10.0))
    resume.set()
    await first
    await stopped
    assert case.guard.app.in_hand == 0


async def test_a_certificate_without_a_known_name_is_rejected(open_case):
    case = await open_case("https", client="other.example")
    with pytest.raises(Refused) as caught:
        await case.submit()
    assert isinstance(caught.value.error, CoreError)
    assert "tls.clientNames" in str(caught.value.error)
    assert (await case.transport.status()).rejects_us
    assert case.guard.processing.scans == []


async def test_a_name_that_a_reload_removed_is_rejected(open_case):
    case = await open_case("https")
    await case.submit()
    case.guard.app.use(clients=ClientNames(("other.example",), "tls.clientNames in guard.yml"))
    with pytest.raises(Refused) as caught:
        await case.submit()
    assert isinstance(caught.value.error, CoreError)
    assert len(case.guard.processing.scans) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_an_unexpected_error_is_no_result(open_case, way):
    case = await open_case(way, fail(RuntimeError("bug")))
    with pytest.raises(Died) as caught:
        await case.submit()
    assert (type(caught.value.error), caught.value.kind) == (CoreError, "status 500 internal_error")


@pytest.mark.parametrize("way", WAYS)
async def test_a_watched_analysis_has_its_steps_and_the_record(open_case, way):
    case = await open_case(way)
    steps, error = await case.watch(stored=False)
    assert error is None
    assert steps[0] == AnalyzerDone("structure", "finished", 0.5, 1, True)
    assert isinstance(steps[-1], FinishedRequest)
    assert (len(steps), case.guard.processing.scans[0].stored) == (2, False)


@pytest.mark.parametrize("way", WAYS)
async def test_a_long_record_arrives_whole(open_case, way):
    subject = "x" * 1_000_000

    async def analyze(request, observe):
        observe(FIRST)
        return finished_request(ggrid=request.ggrid, subject=subject)

    case = await open_case(way, analyze)
    steps, error = await case.watch()
    assert (error, steps[-1].summary.subject) == (None, subject)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("error", "expected", "inner"),
    [
        (Overloaded("full"), Refused, Overloaded),
        (InternalError("bug"), Died, CoreError),
        (RuntimeError("bug"), Died, CoreError),
        (AnalysisTimeout("late"), AnalysisTimeout, None),
    ],
)
async def test_before_the_first_step_another_guard_can_be_asked(open_case, way, error, expected, inner):
    case = await open_case(way, fail(error))
    with pytest.raises(expected) as caught:
        await case.watch()
    assert inner is None or type(caught.value.error) is inner


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EngineUnavailable("Rspamd is down."), EngineUnavailable),
        (AnalysisTimeout("late"), AnalysisTimeout),
        (RuntimeError("bug"), CoreError),
    ],
)
async def test_after_the_first_step_trouble_is_an_error_and_never_a_result(open_case, way, error, expected):
    case = await open_case(way, fail(error, FIRST))
    steps, raised = await case.watch()
    assert type(raised) is expected
    assert [step.analyzer for step in steps] == ["structure"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_caller_that_goes_away_ends_the_analysis(open_case, way):
    ended = asyncio.Event()

    async def wait(request, observe):
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    case = await open_case(way, wait)
    waiting = asyncio.create_task(case.submit())
    await eventually(lambda: case.guard.admission.in_processing == 1)
    waiting.cancel()
    await asyncio.wait_for(ended.wait(), 10)
    await eventually(lambda: case.guard.admission.in_processing == 0)
    with pytest.raises(TimeoutError):
        await case.submit(seconds=0.2)
    await eventually(lambda: case.guard.admission.in_processing == 0)
    watching = asyncio.create_task(case.watch())
    await eventually(lambda: case.guard.admission.in_processing == 1)
    watching.cancel()
    await eventually(lambda: case.guard.admission.in_processing == 0)


async def test_messages_share_connections_that_notice_a_lost_host(open_case, monkeypatch):
    opened: list[socket.socket] = []

    def remembered(address):
        opened.append(open_socket(address))
        return opened[-1]

    monkeypatch.setattr(https, "open_socket", remembered)
    case = await open_case("https")
    for _ in range(3):
        await case.submit()
        await case.transport.status()
    (used,) = opened
    assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
