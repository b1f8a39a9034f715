"""Reaching an engine: a unix socket or a loopback port, a bounded number of questions at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mailwarden.analysis.analyzer import EngineFailed, RawMessage
from mailwarden.model.evidence import FailureKind

CONNECT_TIMEOUT = 2.0


class Connection:
    """One open connection to an engine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read_to_end(self, limit: int) -> bytes:
        """Return all the engine sends until it closes; more than `limit` bytes is no answer of an engine."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.reader.read(262_144):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise EngineFailed(FailureKind.UNFINISHED, f"The engine answered more than {limit} bytes.")
        return b"".join(pieces)


class EngineDoor:
    """The way to one engine: where it listens and how many may ask at once."""

    def __init__(self, name: str, address: str, max_concurrency: int) -> None:
        self._name = name
        self._address = address
        self._turns = asyncio.Semaphore(max_concurrency)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Wait for a turn, connect, and close whatever happens; trouble on the way is EngineFailed."""
        async with self._turns:
            reader, writer = await self._connect()
            try:
                yield Connection(reader, writer)
            except (OSError, EOFError) as error:
                raise EngineFailed(FailureKind.UNFINISHED, f"{self._name} broke off: {_said(error)}.") from error
            finally:
                writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        kind, _, rest = self._address.partition(":")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                if kind == "unix":
                    return await asyncio.open_unix_connection(rest)
                host, _, port = rest.rpartition(":")
                return await asyncio.open_connection(host, int(port))
        except TimeoutError:
            sentence = f"{self._name} at {self._address} did not take the connection within {CONNECT_TIMEOUT:.0f} s."
            raise EngineFailed(FailureKind.UNREACHABLE, sentence) from None
        except OSError as error:
            sentence = f"{self._name} at {self._address} cannot be reached: {_said(error)}."
            raise EngineFailed(FailureKind.UNREACHABLE, sentence) from error


async def send(writer: asyncio.StreamWriter, head: bytes, raw: RawMessage) -> None:
    """Send a head and then the message: at once where it is small, else piece by piece with back-pressure."""
    if raw.path is None:
        writer.writelines([head, *raw.chunks()])
        await writer.drain()
        return
    writer.write(head)
    for piece in raw.chunks():
        writer.write(piece)
        await writer.drain()


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
