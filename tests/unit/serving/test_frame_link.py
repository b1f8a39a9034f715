"""One connection of frames: messages take turns, the queue is bounded, and a dead connection ends what waits for it."""

import asyncio

import pytest

from mailwarden.serving import frame_link
from mailwarden.serving.frame_link import MAX_QUEUE, FrameLink
from mailwarden.wire import frames
from mailwarden.wire.frames import FrameDecoder, FrameError, Kind


class Transport(asyncio.Transport):
    """Keeps what is written; it is full when the test says so."""

    def __init__(self):
        super().__init__()
        self.written = []
        self.aborted = self.closed = False

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def write(self, data):
        self.written.append(data)

    def abort(self):
        self.aborted = True

    def close(self):
        self.closed = True


class Link(FrameLink):
    def __init__(self):
        super().__init__()
        self.taken, self.kinds, self.losses = [], [], 0

    def take(self, kind, stream, payload):
        if payload == b"bad":
            raise FrameError("bad_payload")
        self.taken.append((kind, stream, payload))

    def lost(self):
        self.losses += 1

    def broken(self, kind):
        self.kinds.append(kind)


@pytest.fixture
async def link():
    link, transport = Link(), Transport()
    link.connection_made(transport)
    yield link, transport
    link.connection_lost(None)


def sent(transport):
    return [(kind, stream) for kind, stream, _ in FrameDecoder().feed(b"".join(transport.written))]


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_frames_of_one_turn_of_the_loop_are_one_write(link):
    link, transport = link
    for number in (1, 2, 3):
        await link.send(frames.encode(Kind.ANSWER, number))
    await settle()
    assert len(transport.written) == 1
    assert sent(transport) == [(Kind.ANSWER, 1), (Kind.ANSWER, 2), (Kind.ANSWER, 3)]


async def test_a_large_message_and_small_ones_take_turns(link):
    link, transport = link
    link.pause_writing()
    order = []

    async def send(number, count):
        for _ in range(count):
            await link.send(frames.encode(Kind.DATA, number, b"x" * frames.MAX_PAYLOAD))
            order.append(number)

    large = asyncio.create_task(send(1, 6))
    await settle()
    small = [asyncio.create_task(send(number, 1)) for number in (2, 3)]
    await settle()
    assert order == []
    link.resume_writing()
    await asyncio.gather(large, *small)
    await settle()
    assert [stream for _, stream in sent(transport)][:3] == [1, 2, 3]
    assert len(sent(transport)) == 8


async def test_messages_wait_while_the_other_process_does_not_read(link):
    link, transport = link
    link.pause_writing()
    waiting = [
        asyncio.create_task(link.send(frames.encode(Kind.DATA, number, b"x" * frames.MAX_PAYLOAD)))
        for number in range(1, 9)
    ]
    await settle()
    assert transport.written == []
    waiting[3].cancel()
    link.resume_writing()
    await asyncio.gather(*waiting, return_exceptions=True)
    await settle()
    assert [stream for _, stream in sent(transport)] == [1, 2, 3, 5, 6, 7, 8]


async def test_answers_that_nobody_reads_close_the_connection(link):
    link, transport = link
    link.pause_writing()
    for _ in range(MAX_QUEUE // frames.MAX_PAYLOAD + 1):
        link.write(frames.encode(Kind.LINE, 1, b"x" * frames.MAX_PAYLOAD))
    assert (link.kinds, transport.aborted) == (["not_reading"], True)


async def test_a_connection_without_progress_is_closed(link, monkeypatch):
    monkeypatch.setattr(frame_link, "STALLED_SECONDS", 0.01)
    link, transport = link
    link.pause_writing()
    await asyncio.sleep(0.05)  # longer than STALLED_SECONDS
    assert (link.kinds, transport.aborted) == (["stalled"], True)


async def test_a_silent_connection_is_closed():
    class Impatient(Link):
        silence = 0.02

    link, transport = Impatient(), Transport()
    link.connection_made(transport)
    await asyncio.sleep(0.1)  # longer than the silence
    assert (link.kinds, transport.aborted) == (["silent"], True)


@pytest.mark.slow
async def test_a_connection_that_is_heard_stays_open():
    class Impatient(Link):
        silence = 1.5  # far longer than a pause of a busy machine

    link, transport = Impatient(), Transport()
    link.connection_made(transport)
    for _ in range(20):
        link.data_received(frames.encode(Kind.PONG, 0))
        await asyncio.sleep(0.1)  # together longer than the silence
    assert not transport.aborted
    link.connection_lost(None)


async def test_a_ping_is_answered(link):
    link, transport = link
    link.data_received(frames.encode(Kind.PING, 0))
    await settle()
    assert sent(transport) == [(Kind.PONG, 0)]
    assert link.taken == []


async def test_a_broken_frame_closes_the_connection_and_is_counted(link):
    link, transport = link
    link.data_received(
        frames.encode(Kind.LINE, 1, b"good") + frames.encode(Kind.LINE, 1, b"bad") + frames.encode(Kind.LINE, 1)
    )
    assert (len(link.taken), link.kinds, transport.aborted) == (1, ["bad_payload"], True)
    link.data_received(frames.encode(Kind.LINE, 1, b"later"))
    assert len(link.taken) == 1


async def test_a_lost_connection_ends_what_waits():
    link, transport = Link(), Transport()
    link.connection_made(transport)
    link.pause_writing()
    waiting = asyncio.create_task(link.send(frames.encode(Kind.DATA, 1)))
    await settle()
    link.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await waiting
    with pytest.raises(ConnectionResetError):
        await link.send(frames.encode(Kind.DATA, 1))
    assert link.losses == 1


async def test_closing_writes_the_last_frames(link):
    link, transport = link
    link.write(frames.encode(Kind.ANSWER, 1))
    link.close(frames.encode(Kind.GOODBYE, 0, b"stopping"))
    assert sent(transport) == [(Kind.ANSWER, 1), (Kind.GOODBYE, 0)]
    assert transport.closed
