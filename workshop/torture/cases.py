"""A torture case, and the function that sends it: raw bytes over a connection, the response read to its end."""

import asyncio
import json
import re
import ssl
from dataclasses import dataclass

SUBMIT = "/v1/messageQueue/submitEmail"
CLOSED = 0  # the expected status of a connection that is closed without a response

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


@dataclass(frozen=True, slots=True)
class Expected:
    """One status, the error code in its body, and the permitted number of responses (100 Continue does not count)."""

    status: int
    error: str = ""
    answers: int = 1


@dataclass(frozen=True, slots=True)
class Case:
    """Bytes to send; `{TOKEN}` in them becomes a valid token. `pauses` are seconds to wait between the pieces."""

    name: str
    pieces: tuple[bytes, ...]
    expected: tuple[Expected, ...]
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The response to a case."""

    case: Case
    status: int
    error: str
    answers: int
    request_id: bool

    @property
    def passed(self) -> bool:
        """Return whether the case allows this response, and it is in our format."""
        form = self.status in (CLOSED, 200) or (bool(self.error) and self.request_id)
        return form and Expected(self.status, self.error, self.answers) in self.case.expected


async def run_http_case(
    host: str, port: int, ssl_context: ssl.SSLContext | None, token: str, case: Case, *, timeout: float = 60.0
) -> Outcome:
    """Send the case on its own connection and return the outcome."""
    reader, writer = await asyncio.open_connection(host, port, ssl=ssl_context, limit=2**24)
    try:
        sending = asyncio.create_task(_send(writer, token, case))
        raw = await _read_answer(reader, timeout)
        sending.cancel()
    finally:
        writer.transport.abort()
    return read_outcome(case, raw)


def read_outcome(case: Case, raw: bytes) -> Outcome:
    """Parse the raw response."""
    finals = [int(status) for status in _STATUS.findall(raw) if not status.startswith(b"1")]
    if not finals:
        return Outcome(case, CLOSED, "", 0, request_id=False)
    body = raw[raw.rfind(b"\r\n\r\n") + 4 :]
    try:
        error = str(json.loads(body).get("error", ""))
    except (ValueError, AttributeError):
        error = ""
    return Outcome(case, finals[0], error, len(finals), b"\r\nX-Request-Id: " in raw)


async def _send(writer: asyncio.StreamWriter, token: str, case: Case) -> None:
    try:
        for index, piece in enumerate(case.pieces):
            if index and case.pause:
                await asyncio.sleep(case.pause)
            writer.write(piece.replace(b"{TOKEN}", token.encode()))
            await writer.drain()
    except OSError:
        pass  # the server closed the connection early, as some cases intend


async def _read_answer(reader: asyncio.StreamReader, timeout: float) -> bytes:
    """Read until the server closes the connection, or is quiet for half a second after a final response."""
    loop = asyncio.get_running_loop()
    end, raw = loop.time() + timeout, b""
    while (left := end - loop.time()) > 0:
        finished = any(not status.startswith(b"1") for status in _STATUS.findall(raw))
        try:
            chunk = await asyncio.wait_for(reader.read(65_536), min(left, 0.5) if finished else left)
        except (TimeoutError, OSError):
            break
        if not chunk:
            break
        raw += chunk
    return raw
