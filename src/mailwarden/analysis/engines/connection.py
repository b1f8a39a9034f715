"""Connections to engines: one connection per request; the answer is read until the engine closes it."""

import asyncio
from collections.abc import Iterable
from typing import cast

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.model.evidence import FailureKind

CONNECT_TIMEOUT = 2.0
BATCH = 262_144
MAX_PROBE_ANSWER = 65_536  # not inspection: an engine's own answer


class Exchange(asyncio.Protocol):
    """One question and its answer; the answer is whole when the engine has closed the connection."""

    def __init__(self, limit: int) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[bytes] = loop.create_future()
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._room: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > self._limit and not self.answer.done():
            sentence = f"The engine answered more than {self._limit} bytes."
            self.answer.set_exception(EngineFailed(FailureKind.UNFINISHED, sentence))

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
        if self.answer.done():
            return
        if exc is not None:
            self.answer.set_exception(exc)
        else:
            self.answer.set_result(b"".join(self._pieces))

    def pause_writing(self) -> None:
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    async def wait_for_room(self) -> None:
        """Wait while the engine takes bytes more slowly than they are written."""
        if self._room is not None:
            await self._room


class EngineConnection:
    """Where one engine listens, and how many questions it gets at once."""

    def __init__(self, name: str, address: str, max_concurrency: int) -> None:
        self._name = name
        self._address = address
        self._turns = asyncio.Semaphore(max_concurrency)

    async def ask(self, question: Iterable[bytes], limit: int) -> bytes:
        """Wait for a turn, send the question piece by piece, and return the answer; trouble is EngineFailed."""
        async with self._turns:
            return await self._exchange(question, limit)

    async def probe(self, question: bytes) -> bytes:
        """Ask without waiting for a turn whether the engine is there: one whose every turn is taken is not down."""
        return await self._exchange((question,), MAX_PROBE_ANSWER)

    async def _exchange(self, question: Iterable[bytes], limit: int) -> bytes:
        transport, exchange = await self._connect(limit)
        try:
            await _send(transport, exchange, question)
            return await exchange.answer
        except OSError as error:
            sentence = f"{self._name} broke off: {error or type(error).__name__}."
            raise EngineFailed(FailureKind.UNFINISHED, sentence) from error
        finally:
            transport.abort()
            exchange.answer.cancel()

    async def _connect(self, limit: int) -> tuple[asyncio.WriteTransport, Exchange]:
        loop = asyncio.get_running_loop()
        kind, _, rest = self._address.partition(":")
        try:
            if kind == "unix":
                opened = await loop.create_unix_connection(lambda: Exchange(limit), rest)
            else:
                host, _, port = rest.rpartition(":")
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    opened = await loop.create_connection(lambda: Exchange(limit), host, int(port))
        except (OSError, TimeoutError) as error:
            sentence = f"{self._name} at {self._address} cannot be reached: {error or type(error).__name__}."
            raise EngineFailed(FailureKind.UNREACHABLE, sentence) from error
        return cast("asyncio.WriteTransport", opened[0]), opened[1]


async def _send(transport: asyncio.WriteTransport, exchange: Exchange, question: Iterable[bytes]) -> None:
    """Write the pieces many at once, and no faster than the engine takes them."""
    batch: list[bytes] = []
    size = 0
    for piece in question:
        batch.append(piece)
        size += len(piece)
        if size >= BATCH:
            _write(transport, batch)
            await exchange.wait_for_room()
            batch, size = [], 0
    _write(transport, batch)


def _write(transport: asyncio.WriteTransport, batch: list[bytes]) -> None:
    # uvloop raises on a write to a closed transport; the answer shows whether the request succeeded.
    if not transport.is_closing():
        transport.writelines(batch)
