"""The two clients to compare: one calls the engines directly, one calls abby; both have little overhead."""

import asyncio
import json
import ssl
import struct

from mailwarden.engines.rspamd import request_head
from mailwarden.model.envelope import Envelope

ENVELOPE = Envelope("ann@sender.example", ("bob@corp.example",), "203.0.113.5", "mail.sender.example")
_BOUNDARY = "bench-9f1c0c4e7d"


class DirectClient:
    """Calls Rspamd and clamd for the same message in parallel, and checks only that both answered."""

    def __init__(self, rspamd: str, clamav: str) -> None:
        self._rspamd = rspamd.removeprefix("unix:")
        self._clamav = clamav.removeprefix("unix:")

    async def ask(self, message: bytes) -> None:
        head = request_head(ENVELOPE, len(message))
        stream = b"".join((b"zINSTREAM\0", struct.pack(">I", len(message)), message, struct.pack(">I", 0)))
        spam, virus = await asyncio.gather(self._talk(self._rspamd, head + message), self._talk(self._clamav, stream))
        if b'"symbols"' not in spam or not virus.startswith(b"stream: "):
            raise RuntimeError(f"an engine did not answer: {spam[:80]!r} {virus[:80]!r}")

    async def _talk(self, path: str, question: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(question)
            return await reader.read(-1)
        finally:
            writer.transport.abort()


class ScanClient:
    """Submits one message after the other over one TLS connection to abby."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, token: str) -> None:
        self._address = (host, port)
        self._context = context
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, message: bytes) -> None:
        status, body = await self.submit(message)
        if status != 200 or b'"verdict":"unknown"' in body:
            raise RuntimeError(f"abby answered {status}: {body[:200]!r}")

    async def submit(self, message: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, ssl=self._context)
        reader, writer = self._streams
        writer.write(submission(message, self._token))
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return int(head[9:12]), await reader.readexactly(length)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()


def submission(message: bytes, token: str) -> bytes:
    """Return the whole HTTP request for one message."""
    parameters = {
        "borderMtaData": {
            "envelopeFrom": ENVELOPE.sender,
            "envelopeRecipients": list(ENVELOPE.recipients),
            "remoteAddress": ENVELOPE.remote_address,
            "senderHelo": ENVELOPE.helo,
        }
    }
    body = b"".join(
        (
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="parameters"\r\n'.encode(),
            b"Content-Type: application/json\r\n\r\n",
            json.dumps(parameters).encode(),
            f'\r\n--{_BOUNDARY}\r\nContent-Disposition: form-data; name="email"; filename="m.eml"\r\n\r\n'.encode(),
            message,
            f"\r\n--{_BOUNDARY}--\r\n".encode(),
        )
    )
    head = (
        "POST /v1/messageQueue/submitEmail HTTP/1.1\r\nHost: abby\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: multipart/form-data; boundary={_BOUNDARY}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
