"""Frames over real TLS: upgrades, guards that die, stall or are silent, and peers that break the protocol."""

import asyncio
import itertools
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

import pytest

from mailwarden.abby import guard_frames
from mailwarden.abby.guard_client import submission_of
from mailwarden.abby.guard_frames import FramesTransport, GuardConnections
from mailwarden.abby.guard_http import HttpTransport, open_session
from mailwarden.abby.guard_transport import Died, Refused, ScanRequest
from mailwarden.errors import CoreUnreachable
from mailwarden.guard.sources import frames as frames_source
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.serving import frame_link
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.serving.tls import HTTP, server_context
from mailwarden.serving.uploads import MAX_BODY, Upload
from mailwarden.wire import frames
from mailwarden.wire.frames import FrameDecoder, Hello, Kind, ScanHead
from rig.stand_in_guard import abby_context, make_stand_in_certificates, stand_in_guard
from tests.samples.finished import finished_request
from tests.waiting import eventually

RAW = b"Subject: x\r\n\r\nhello\r\n"
ENVELOPE = Envelope("", ("b@acme.example",))
GROUPS = (RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS), ENVELOPE.recipients),)
PARAMETERS = b'{"borderMtaData":{"envelopeFrom":"","envelopeRecipients":["b@acme.example"]}}'
GREETING = frames.encode_record(Kind.HELLO, Hello(frames.VERSIONS, "test"))


async def finish(request, observe):
    return finished_request(ggrid=request.ggrid)


async def hang(request, observe):
    await asyncio.sleep(600)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_stand_in_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(guard_frames, "LOOK_AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(guard_frames, "LONGEST_PAUSE", 0.2)


class Abby:
    """The transport of an abby to one address."""

    def __init__(self, http, connections, errors):
        self.transport = FramesTransport(http, connections)
        self.connections = connections
        self.errors = errors

    async def submit(self, message=None, seconds=60.0):
        upload = Upload("", PARAMETERS, message or Spooled.of(RAW), None)
        deadline = asyncio.get_running_loop().time() + seconds
        request = ScanRequest(new_ggrid(), ENVELOPE, GROUPS, "id")
        async with asyncio.timeout_at(deadline):
            return await self.transport.submit(submission_of(upload), request, deadline, "")

    async def connected(self, count=1):
        await eventually(lambda: self.connections.count == count)


@pytest.fixture
async def rig(certificates, tmp_path):
    """Return functions that start guards and abbys."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.sleep, 0.05)  # for transports to close

        class Rig:
            folder = tmp_path

            def guard(self, analysis=finish, **options):
                return stand_in_guard(certificates, tmp_path, analysis, **options)

            async def start_guard(self, analysis=finish, **options):
                return await stack.enter_async_context(self.guard(analysis, **options))

            async def abby(self, address):
                session = await stack.enter_async_context(open_session(abby_context(certificates)))
                errors: list[str] = []
                connections = GuardConnections(address, abby_context(certificates, frames=True), errors.append)
                connections.start()
                stack.push_async_callback(connections.stop)
                return Abby(HttpTransport(session, address), connections, errors)

            async def raw_client(self, guard):
                """Connect as abby does, and leave the frames to the test."""
                tls = abby_context(certificates, frames=True)
                reader, writer = await asyncio.open_connection("127.0.0.1", guard.port, ssl=tls)
                stack.callback(writer.transport.abort)
                return reader, writer

            async def raw_guard(self, behave):
                """Run a guard that does what the test says with each connection."""
                files = (certificates / "guard.crt", certificates / "guard.key", certificates / "ca.crt")
                tls = server_context(*files, protocols=(frames.ALPN, HTTP))

                async def serve(reader, writer):
                    stack.callback(writer.transport.abort)
                    await behave(reader, writer)

                server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
                stack.callback(server.close)
                return f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        yield Rig()


async def spooled(folder, size):
    writer = SpoolWriter(folder)
    for _ in range(size // 262_144):
        await writer.write(b"x" * 262_144)
    await writer.write(b"y" * (size % 262_144))
    return await writer.finish()


def counted(guard, kind):
    return f'mailwarden_frame_errors_total{{kind="{kind}"}} 1.0' in guard.metrics.page().decode()


# Upgrades


async def test_an_older_guard_gets_the_message_by_https_until_it_speaks_frames(rig):
    async with rig.guard(with_frames=False) as old:
        abby = await rig.abby(old.address)
        await abby.submit()
        assert (len(old.processing.messages), abby.connections.count) == (1, 0)
    async with rig.guard(port=old.port) as new:
        await abby.connected()
        await abby.submit()
        assert len(new.frames.connections) == 1
        assert new.processing.messages == [RAW]
    async with rig.guard(port=old.port, with_frames=False) as old:
        await eventually(lambda: abby.connections.count == 0)
        await abby.submit()
        assert old.processing.messages == [RAW]


async def test_processes_without_a_common_version_use_https(rig, monkeypatch):
    guard = await rig.start_guard()
    monkeypatch.setattr(frames, "select_version", lambda versions: None)
    abby = await rig.abby(guard.address)
    await asyncio.sleep(0.5)  # several attempts
    await abby.submit()
    assert (abby.connections.count, len(guard.processing.messages)) == (0, 1)


async def test_guards_behind_one_address_have_a_connection_each(rig):
    first, second = await rig.start_guard(), await rig.start_guard()
    turns = itertools.cycle([first.port, second.port])
    pairs: list[asyncio.StreamWriter] = []

    async def forward(reader, writer):
        there = await asyncio.open_connection("127.0.0.1", next(turns))
        pairs.extend((writer, there[1]))

        async def copy(source, target):
            while data := await source.read(65_536):
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer), return_exceptions=True)

    balancer = await asyncio.start_server(forward, "127.0.0.1", 0)
    abby = await rig.abby(f"https://127.0.0.1:{balancer.sockets[0].getsockname()[1]}")
    await abby.connected(2)
    await eventually(lambda: (len(first.frames.connections), len(second.frames.connections)) == (1, 1))
    first.processing.analysis = second.processing.analysis = hang
    waiting = [asyncio.create_task(abby.submit()) for _ in range(4)]
    await eventually(lambda: first.admission.in_processing == second.admission.in_processing == 2)
    for task in waiting:
        task.cancel()
    balancer.close()
    for writer in pairs:
        writer.transport.abort()


async def test_an_old_connection_is_replaced(rig, monkeypatch):
    guard = await rig.start_guard()
    abby = await rig.abby(guard.address)
    await abby.connected()
    first = abby.connections.best()
    monkeypatch.setattr(guard_frames, "MAX_AGE_SECONDS", 0.0)
    await eventually(lambda: first.closed)
    assert abby.connections.best() is not None
    await abby.submit()


# Faults


async def test_a_guard_that_dies_fails_its_messages_at_once_and_is_found_again(rig):
    guard = await rig.start_guard(hang)
    abby = await rig.abby(guard.address)
    await abby.connected()
    large = await spooled(rig.folder, 3_000_000)
    waiting = [asyncio.create_task(abby.submit(message)) for message in (None, None, large)]
    await eventually(lambda: guard.admission.in_processing == 3)
    for connection in [*guard.frames.connections]:
        connection._transport.abort()
    for task in waiting:
        with pytest.raises(Died) as caught:
            await asyncio.wait_for(task, 5)
        assert isinstance(caught.value.error, CoreUnreachable)
    await eventually(lambda: guard.admission.in_processing == 0)
    await abby.connected()
    guard.processing.analysis = finish
    await abby.submit()


async def test_a_guard_that_is_away_is_reported_as_by_https(rig):
    async with rig.guard() as guard:
        abby = await rig.abby(guard.address)
        await abby.connected()
    await eventually(lambda: abby.connections.count == 0)
    with pytest.raises(Refused) as caught:
        await abby.submit()
    assert isinstance(caught.value.error, CoreUnreachable)


async def test_a_message_that_was_not_sent_goes_by_https(rig):
    guard = await rig.start_guard()
    abby = await rig.abby(guard.address)
    await abby.connected()
    connection = abby.connections.best()
    connection.pause_writing()
    waiting = asyncio.create_task(abby.submit())
    await asyncio.sleep(0.05)  # it waits for its turn
    connection._transport.abort()
    assert (await waiting).ggrid
    assert len(guard.processing.messages) == 1


async def test_a_half_open_connection_is_closed_and_its_messages_fail(rig, monkeypatch):
    monkeypatch.setattr(guard_frames.GuardConnection, "silence", 0.5)

    async def greet_only(reader, writer):
        await reader.read(65_536)
        writer.write(frames.encode_record(Kind.HELLO, frames.HelloAnswer(1, "a")))
        await asyncio.sleep(60)

    abby = await rig.abby(await rig.raw_guard(greet_only))
    await abby.connected()
    with pytest.raises(Died) as caught:
        await abby.submit()
    assert isinstance(caught.value.error, CoreUnreachable)
    assert "silent" in abby.errors


async def test_a_guard_that_stops_reading_fails_its_messages(rig, monkeypatch):
    monkeypatch.setattr(frame_link, "STALLED_SECONDS", 0.5)

    async def greet_only(reader, writer):
        await reader.read(65_536)
        writer.write(frames.encode_record(Kind.HELLO, frames.HelloAnswer(1, "a", window=16_777_216)))
        await asyncio.sleep(60)

    abby = await rig.abby(await rig.raw_guard(greet_only))
    await abby.connected()
    large = await spooled(rig.folder, 16_000_000)
    with pytest.raises(Died) as caught:
        await abby.submit(large)
    assert isinstance(caught.value.error, CoreUnreachable)
    assert "stalled" in abby.errors


async def test_an_abby_that_stops_reading_is_disconnected(rig, monkeypatch):
    monkeypatch.setattr(frame_link, "STALLED_SECONDS", 0.5)

    async def long_answer(request, observe):
        return finished_request(ggrid=request.ggrid, subject="x" * 3_000_000)

    guard = await rig.start_guard(long_answer)
    abby = await rig.abby(guard.address)
    await abby.connected()
    connection = abby.connections.best()
    connection._transport.pause_reading()
    heads = [asyncio.create_task(watch_once(abby)) for _ in range(8)]
    await eventually(lambda: counted(guard, "stalled"))
    await eventually(lambda: guard.admission.in_processing == 0)
    connection._transport.abort()
    await asyncio.gather(*heads, return_exceptions=True)


async def watch_once(abby):
    upload = Upload("", PARAMETERS, Spooled.of(RAW), None)
    request = ScanRequest(new_ggrid(), ENVELOPE, GROUPS, "id")
    deadline = asyncio.get_running_loop().time() + 60
    async with abby.transport.watch(submission_of(upload), request, deadline, stored=False) as progress:
        await progress.next()


async def test_large_messages_do_not_delay_small_ones(rig):
    guard = await rig.start_guard()
    guard.processing.keep = False
    abby = await rig.abby(guard.address)
    await abby.connected()
    large = [asyncio.create_task(abby.submit(await spooled(rig.folder, MAX_BODY))) for _ in range(3)]
    await eventually(lambda: guard.admission.in_processing == 3)
    for _ in range(20):
        await abby.submit()
    assert not any(task.done() for task in large)
    results = await asyncio.gather(*large)
    assert len(results) == 3


async def test_a_rejected_large_message_is_not_sent_whole(rig):
    guard = await rig.start_guard(hang, maximum=1)
    abby = await rig.abby(guard.address)
    await abby.connected()
    first = asyncio.create_task(abby.submit())
    await eventually(lambda: guard.admission.in_processing == 1)
    connection = abby.connections.best()
    sent = 0
    write = connection.write

    def count(frame):
        nonlocal sent
        sent += len(frame)
        write(frame)

    connection.write = count
    with pytest.raises(Refused):
        await abby.submit(await spooled(rig.folder, MAX_BODY))
    assert sent < frames.WINDOW + 10_000
    first.cancel()


# Peers that break the protocol


def opening(stream, data=b"", **sizes):
    head = ScanHead(new_ggrid(), 5_000, **{"parameters_size": 0, "message_size": len(data), **sizes})
    frame = frames.encode_open(stream, head, data)
    assert frame is not None
    return frame


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "too_large"),
        (frames.encode(Kind.DATA, 1, b"x"), "unexpected_frame"),
        (opening(1), "unexpected_frame"),
        (GREETING + GREETING, "unexpected_frame"),
        (frames.encode(Kind.HELLO, 0, b"{}"), "bad_payload"),
        (GREETING + b"\xff\xff\xff\xff" + bytes(5), "too_large"),
        (GREETING + frames.encode(Kind.DATA, 1, b"x"), "unexpected_frame"),
        (GREETING + frames.encode(Kind.CANCEL, 7), "unexpected_frame"),
        (GREETING + frames.encode(Kind.ANSWER, 1, b"x"), "unexpected_frame"),
        (GREETING + frames.encode(Kind.OPEN, 1, b"\x00\x09{}"), "bad_payload"),
        (GREETING + opening(2, b"x", message_size=9) + opening(2), "bad_stream"),
        (GREETING + opening(2, b"x", message_size=9) + opening(1), "bad_stream"),
        (GREETING + opening(1, b"xy", message_size=1), "too_many_bytes"),
        (GREETING + opening(1, message_size=1) + frames.encode(Kind.DATA, 1, b"xy"), "too_many_bytes"),
    ],
)
async def test_a_broken_frame_closes_the_connection_and_is_counted(rig, sent, kind):
    guard = await rig.start_guard()
    reader, writer = await rig.raw_client(guard)
    writer.write(sent)
    await asyncio.wait_for(read_to_end(reader), 10)
    assert counted(guard, kind), guard.metrics.page().decode()
    await eventually(lambda: (len(guard.frames.connections), guard.admission.in_processing) == (0, 0))
    assert guard.processing.messages == []


async def read_to_end(reader):
    data = b""
    try:
        while piece := await reader.read(65_536):
            data += piece
    except ConnectionError:
        pass
    return data


async def test_a_client_without_a_greeting_is_disconnected(rig, monkeypatch):
    monkeypatch.setattr(frames_source, "HELLO_SECONDS", 0.1)
    guard = await rig.start_guard()
    reader, _ = await rig.raw_client(guard)
    await asyncio.wait_for(read_to_end(reader), 10)
    assert counted(guard, "no_hello")


@pytest.mark.parametrize(
    ("sizes", "code"),
    [
        ({"message_size": MAX_BODY + 1}, b"payload_too_large"),
        ({"message_size": 1, "parameters_size": 2**30}, b"payload_too_large"),
        ({"message_size": 0}, b"empty_email"),
        ({"message_size": 4, "parameters_size": 2}, b"bad_request"),
    ],
)
async def test_a_message_that_is_wrong_in_itself_gets_an_error(rig, sizes, code):
    guard = await rig.start_guard()
    reader, writer = await rig.raw_client(guard)
    data = b"{}text" if sizes["message_size"] == 4 else b""
    writer.write(GREETING + opening(1, data, **sizes))
    decoder = FrameDecoder()
    seen: list[frames.Frame] = []
    while not any(kind == Kind.ANSWER for kind, _, _ in seen):
        seen += decoder.feed(await asyncio.wait_for(reader.read(65_536), 10))
    assert code in seen[-1][2]
    assert len(guard.frames.connections) == 1


@asynccontextmanager
async def greeting_guard(rig, *answers):
    """Run a guard that greets, and answers the first message with these frames."""

    async def behave(reader, writer):
        await reader.read(65_536)
        writer.write(frames.encode_record(Kind.HELLO, frames.HelloAnswer(1, "a")))
        decoder = FrameDecoder()
        while data := await reader.read(65_536):
            if any(kind == Kind.OPEN for kind, _, _ in decoder.feed(data)):
                for answer in answers:
                    writer.write(answer)

    abby = await rig.abby(await rig.raw_guard(behave))
    await abby.connected()
    yield abby


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\n", "too_large"),
        (frames.encode(Kind.ANSWER, 99, b"\x00\xc8\xff\xff{}"), "unexpected_frame"),
        (frames.encode(Kind.OPEN, 1, b""), "unexpected_frame"),
        (frames.encode(Kind.HELLO, 0, b"{}"), "unexpected_frame"),
        (frames.encode(Kind.CREDIT, 1, b"abc"), "bad_payload"),
        (frames.encode(Kind.PART, 1, b"x" * frames.MAX_PAYLOAD) * 17, "answer_too_large"),
    ],
)
async def test_a_guard_that_breaks_the_protocol_has_not_answered(rig, answer, kind):
    async with greeting_guard(rig, answer) as abby:
        with pytest.raises(Died):
            await asyncio.wait_for(abby.submit(), 10)
        assert kind in abby.errors


@pytest.mark.parametrize(
    "answer",
    [
        frames.encode(Kind.ANSWER, 1, b""),
        frames.encode(Kind.ANSWER, 1, b"\x00\xc8\xff\xff{}"),
        frames.encode(Kind.ANSWER, 1, b"\x01\xf4\xff\xffno"),
        frames.encode(Kind.LINE, 1, b"{}"),
    ],
)
async def test_an_answer_that_is_no_result_is_never_passed_on(rig, answer):
    async with greeting_guard(rig, answer) as abby:
        with pytest.raises(Died):
            await asyncio.wait_for(abby.submit(), 10)
