"""Engines and next hops that disconnect early, on uvloop: an early disconnect is no internal error."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

import pytest
import uvloop

from mailwarden.engines.engine import EngineConnection, Exchange
from mailwarden.smtp.client import DeliveryFailed, NextHop
from mailwarden.smtp.commands import Forwarded, Recipient, Sender

MOMENT = 0.1


class SlowConnection(EngineConnection):
    """A connection to an engine that waits before it sends."""

    async def _connect(self, limit: int) -> tuple[asyncio.WriteTransport, Exchange]:
        opened = await super()._connect(limit)
        await asyncio.sleep(MOMENT)
        return opened


@pytest.mark.parametrize("pieces", [1, 10])
def test_an_engine_that_hangs_up_at_once_has_answered_nothing(tmp_path: Path, pieces: int):
    place = tmp_path / "engine"

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def ask() -> bytes:
        async with await asyncio.start_unix_server(hang_up, place):
            return await SlowConnection("Rspamd", f"unix:{place}", 1).ask([b"x" * 100_000] * pieces, 1_000)

    assert run(ask()) == b""


def test_a_next_hop_that_hangs_up_before_the_data_has_not_taken_the_message():
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 next.example\r\n")
        while line := await reader.readline():
            writer.write(b"354 Go on\r\n" if line.startswith(b"DATA") else b"250 Ok\r\n")
            if line.startswith(b"DATA"):
                await asyncio.sleep(MOMENT)
                break
        # As a process that is killed leaves it: the other side is told of it without having asked.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def message() -> AsyncIterator[bytes]:
        yield b"Subject: x\r\n\r\n"

    async def send() -> None:
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        async with server:
            hop = NextHop(server.sockets[0].getsockname(), 5.0, "guard.example")
            connection = await hop.prepare(Sender("a@b.example"), [Recipient("c@d.example")], Forwarded(), 100)
            await asyncio.sleep(3 * MOMENT)
            await hop.send(connection, message())

    with pytest.raises(DeliveryFailed, match=r"451 4\.4\.2"):
        run(send())


def run(scenario: Coroutine[object, object, object]) -> object:
    return uvloop.run(scenario)
