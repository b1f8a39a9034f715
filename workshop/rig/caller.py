"""A client of the product: one TLS connection, one request after the other; unexpected bytes are an error."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
SUBMIT = "/v1/messageQueue/submitEmail"
STATUS = "/v1/admin/status"
PIECE = 262_144
BORDER: Mapping[str, object] = {
    "envelopeFrom": "alice@pass.example",
    "envelopeRecipients": ["bob@company.example"],
    "remoteAddress": "192.0.2.10",
    "senderHelo": "mail.pass.example",
}
_BOUNDARY = "caller-5d1f6f1a2b"


class NoAnswerError(Exception):
    """The connection ended, or the timeout passed, before a whole response arrived."""


class SurplusAnswerError(Exception):
    """More bytes arrived than the responses to the requests."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def record(self) -> dict[str, object]:
        """Return the JSON object of the body."""
        record = json.loads(self.body)
        assert isinstance(record, dict)
        return record

    @property
    def error(self) -> str:
        """Return the error code, or "" if the body has none."""
        try:
            return str(self.record.get("error", ""))
        except (ValueError, AssertionError):
            return ""

    def __str__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


class _Pipe(asyncio.Protocol):
    """Collects received bytes and wakes the waiting reader."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.closed = False
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._wake.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.closed = True
        self._wake.set()
        self._room.set()

    async def write(self, transport: asyncio.Transport, request: bytes) -> None:
        """Send the request in pieces; a response before its end stops the sending."""
        for place in range(0, len(request), PIECE):
            await self._room.wait()
            if self.closed or (self.received and place):
                return
            transport.write(request[place : place + PIECE])

    async def read_until(self, end: bytes) -> bytes:
        while (place := self.received.find(end)) < 0:
            await self._more()
        return self.take(place + len(end))

    async def read_exactly(self, size: int) -> bytes:
        while len(self.received) < size:
            await self._more()
        return self.take(size)

    def take(self, size: int) -> bytes:
        taken = bytes(self.received[:size])
        del self.received[:size]
        return taken

    async def _more(self) -> None:
        if self.closed:
            raise NoAnswerError(f"the connection ended after {bytes(self.received[:80])!r}")
        self._wake.clear()
        await self._wake.wait()


class Caller:
    """For one request at a time; connects when needed, also after the other side closed the connection."""

    def __init__(
        self, port: int, context: ssl.SSLContext, token: str, *, patience: float = 30.0, host: str = HOST
    ) -> None:
        self._host = host
        self._port = port
        self._context = context
        self._token = token
        self._patience = patience
        self._connection: tuple[asyncio.Transport, _Pipe] | None = None

    async def submit(self, message: bytes, headers: str = "", border: Mapping[str, object] = BORDER) -> Answer:
        """Submit a message, with an ordinary envelope if none is given."""
        return await self.ask(submission(message, self._token, headers, border))

    async def call(self, method: str, path: str) -> Answer:
        """Send a request without a body."""
        length = "Content-Length: 0\r\n" if method == "POST" else ""
        return await self.ask(f"{method} {path} HTTP/1.1\r\n{_common(self._token)}{length}\r\n".encode("ascii"))

    async def ask(self, request: bytes) -> Answer:
        """Send these bytes and return the one response to them."""
        try:
            async with asyncio.timeout(self._patience):
                transport, pipe = await self._connected()
                await pipe.write(transport, request)
                return await self._read(pipe)
        except TimeoutError:
            self.close()
            raise NoAnswerError(f"no answer within {self._patience:.0f} s") from None
        except OSError as error:
            self.close()
            raise NoAnswerError(str(error)) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection[0].abort()
            self._connection = None

    async def _connected(self) -> tuple[asyncio.Transport, _Pipe]:
        if self._connection is not None:
            _, pipe = self._connection
            if pipe.received:
                raise SurplusAnswerError(f"after the answer came {bytes(pipe.received[:80])!r}")
            if pipe.closed:
                self.close()
        if self._connection is None:
            loop = asyncio.get_running_loop()
            transport, pipe = await loop.create_connection(_Pipe, self._host, self._port, ssl=self._context)
            self._connection = (transport, pipe)
        return self._connection

    async def _read(self, pipe: _Pipe) -> Answer:
        first, *lines = (await pipe.read_until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
        status = int(first.split(" ")[1])
        if status == 100:
            return await self._read(pipe)
        body = await pipe.read_exactly(int(headers["content-length"]))
        if pipe.received:
            raise SurplusAnswerError(f"after the answer came {bytes(pipe.received[:80])!r}")
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, headers, body)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def submission(message: bytes, token: str, headers: str = "", border: Mapping[str, object] = BORDER) -> bytes:
    """Return the whole HTTP request for one message."""
    body = b"".join(
        (
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="parameters"\r\n'.encode("ascii"),
            b"Content-Type: application/json\r\n\r\n",
            json.dumps({"borderMtaData": border}).encode("ascii"),
            f'\r\n--{_BOUNDARY}\r\nContent-Disposition: form-data; name="email"\r\n\r\n'.encode("ascii"),
            message,
            f"\r\n--{_BOUNDARY}--\r\n".encode("ascii"),
        )
    )
    head = (
        f"POST {SUBMIT} HTTP/1.1\r\n{_common(token)}{headers}"
        f"Content-Type: multipart/form-data; boundary={_BOUNDARY}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


def caller_context(ca: Path, identity: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context of a client; `identity` is a folder with abby's certificate, which guards require."""
    context = ssl.create_default_context(cafile=ca)
    if identity is not None:
        context.load_cert_chain(identity / "abby.crt", identity / "abby.key")
    return context


def _common(token: str) -> str:
    return f"Host: {HOST}\r\nAuthorization: Bearer {token}\r\n"
