"""The bytes of a message that arrives in frames: the credit of abby, and limits for a slow or wrong sender."""

import asyncio

import pytest

from mailwarden.errors import RequestTimeout
from mailwarden.guard.sources import frames as source
from mailwarden.guard.sources.frames import Incoming
from mailwarden.model.ggrid import new_ggrid
from mailwarden.wire.frames import WINDOW, FrameError, ScanHead


class Arrival:
    """A message on its way, with the credit that guard gave."""

    def __init__(self, message_size, data=b"", parameters_size=0):
        head = ScanHead(new_ggrid(), 5_000, parameters_size, message_size)
        self.credit = WINDOW - len(data)
        self.incoming = Incoming(head, data, self.grant)

    def grant(self, size):
        assert size > 0
        self.credit += size


async def test_bytes_beyond_the_credit_are_an_error():
    arrival = Arrival(WINDOW * 2)
    arrival.incoming.add(b"x" * WINDOW)
    with pytest.raises(FrameError) as caught:
        arrival.incoming.add(b"x")
    assert caught.value.kind == "beyond_credit"


async def test_bytes_beyond_the_declared_size_are_an_error():
    with pytest.raises(FrameError) as caught:
        Arrival(3, b"four")
    assert caught.value.kind == "too_many_bytes"


@pytest.mark.parametrize("parameters", [0, 10, 65_536, 70_000, 300_000])
@pytest.mark.parametrize("size", [1, 65_536, WINDOW, WINDOW + 1, 3_000_000])
async def test_the_credit_lets_every_message_arrive(parameters, size, tmp_path):
    sent = bytes(range(256)) * ((parameters + size) // 256 + 1)
    sent = sent[: parameters + size]
    arrival = Arrival(size, parameters_size=parameters)
    receiving = asyncio.create_task(arrival.incoming.receive(tmp_path))
    position = 0
    while position < len(sent):
        while not arrival.credit:
            await asyncio.sleep(0)
        piece = sent[position : position + min(arrival.credit, 65_536)]
        arrival.credit -= len(piece)
        position += len(piece)
        assert arrival.credit >= 0
        arrival.incoming.add(piece)
    raw, message = await receiving
    assert (raw, message.data()) == (sent[:parameters], sent[parameters:])
    message.close()


async def test_a_sender_that_stops_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "BODY_TIMEOUT_MS", 50)
    arrival = Arrival(100, b"x")
    with pytest.raises(RequestTimeout):
        await arrival.incoming.receive(tmp_path)


async def test_a_sender_that_is_too_slow_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "BODY_TIMEOUT_MS", 200)
    arrival = Arrival(1_000_000, b"x")
    receiving = asyncio.create_task(arrival.incoming.receive(tmp_path))
    while not receiving.done():
        arrival.incoming.add(b"x")
        await asyncio.sleep(0.02)  # fifty bytes a second
    with pytest.raises(RequestTimeout):
        await receiving
