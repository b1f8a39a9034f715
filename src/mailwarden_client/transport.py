"""Sends requests over HTTPS with a credential, repeats them, and reads responses and streams within limits.

Security: the credential is sent to the given address only. The transport follows no redirect and uses no proxy of the
environment. Any server may answer: every response has a limit.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import aiohttp

from mailwarden_client.errors import ApiError, StreamCut, Unreachable, read_failure, unreadable
from mailwarden_client.records import decode
from mailwarden_client.requests import Request
from mailwarden_client.retries import Retries, RetrySchedule
from mailwarden_client.version import __version__

CALL_SECONDS = 120.0
CONNECT_SECONDS = 10.0
MAX_ANSWER = 16_777_216
MAX_DOWNLOAD = 67_108_864
MAX_LINE = 262_144
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_GOOD = frozenset({200, 202, 204})
# The name did not resolve, the connection was refused, the TLS handshake failed, or none of it came to an end.
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

T = TypeVar("T")
Take = Callable[[aiohttp.ClientResponse], Awaitable[T]]


class Transport:
    """One session; it opens with the first call."""

    def __init__(
        self,
        base_url: str,
        authorization: str,
        *,
        ca: Path | str | None,
        retries: Retries,
        timeout: float,
    ) -> None:
        _check_address(base_url)
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": authorization, "User-Agent": f"mailwarden-client/{__version__}"}
        # A missing file is an error here, not at the first call.
        self._tls = ssl.create_default_context(cafile=None if ca is None else str(ca))
        self._retries = retries
        self._call_time = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_SECONDS)
        # The service limits the total time of a stream; the client limits the wait for the next bytes.
        self._stream_time = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def record(self, request: Request, kind: type[T]) -> T:
        """Send a request and return the record of its response."""
        try:
            return decode(kind, await self.value(request))
        except ValueError as error:
            raise unreadable(f"it is not what this call answers ({error})") from None

    async def value(self, request: Request) -> object:
        raw = await self.body(request, MAX_ANSWER)
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            raise unreadable("it is not JSON") from None

    async def body(self, request: Request, limit: int = MAX_ANSWER) -> bytes:
        async def take(response: aiohttp.ClientResponse) -> bytes:
            return await _read_body(response, limit)

        return await self._send(request, self._call_time, take)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a stream; leaving the context closes it at any point."""
        response = await self._send(request, self._stream_time, _keep_open)
        try:
            yield response
        finally:
            response.close()

    async def lines(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """Yield blocks of whole lines as they arrive, each with its last newline; raise StreamCut without it."""
        rest = b""
        try:
            async for piece in response.content.iter_any():
                lines, newline, rest = (rest + piece).rpartition(b"\n")
                if len(rest) > MAX_LINE:
                    raise stream_cut(response, "a line has no end")
                if newline:
                    yield lines + newline
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise stream_cut(response, f"the connection failed ({type(error).__name__})") from error
        if rest:
            raise stream_cut(response, "the last line is incomplete")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send(self, request: Request, limits: aiohttp.ClientTimeout, take: Take[T]) -> T:
        """Send a request, with retries, and return the result of `take` for the response."""
        schedule = RetrySchedule(self._retries)
        while True:
            try:
                return await self._try(request, limits, take)
            except ApiError as failure:
                wait = schedule.wait_after(failure, request.repeat)
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    async def _try(self, request: Request, limits: aiohttp.ClientTimeout, take: Take[T]) -> T:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls)
            self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
            # aiohttp would repeat every DELETE after a lost response; this client decides what is repeated.
            self._session._retry_connection = False  # noqa: SLF001 -- there is no public way
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._session.request(
                request.method,
                self._base_url + request.path,
                params=dict(request.params),
                headers=dict(request.headers),
                data=request.body or None,
                timeout=limits,
                allow_redirects=False,
                skip_auto_headers=("Content-Type",),  # aiohttp would give a request without a body a type
            )
            if response.status in _GOOD:
                return await take(response)
            raise read_failure(response.status, response.headers, await _read_body(response, MAX_ANSWER))
        except aiohttp.ClientConnectorCertificateError as error:
            reason = f"The certificate of {self._base_url} cannot be verified: {error.certificate_error}"
            raise Unreachable(reason, code="certificate") from error
        except _NOT_SENT as error:
            failure = self._unreachable(error)
            failure.sent = False
            raise failure from error
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise self._unreachable(error) from error
        finally:
            # The reader of an open stream closes it.
            if response is not None and (response.status not in _GOOD or take is not _keep_open):
                response.release()

    def _unreachable(self, error: Exception) -> Unreachable:
        reason = str(error) or type(error).__name__
        return Unreachable(f"No answer from {self._base_url}: {reason}", code="unreachable")


def stream_cut(response: aiohttp.ClientResponse, reason: str) -> StreamCut:
    request_id = response.headers.get("X-Request-Id", "")
    return StreamCut(f"The stream was cut: {reason}.", code="stream_cut", request_id=request_id)


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > limit:
            raise unreadable("it is far too long")
        pieces.append(piece)
    return b"".join(pieces)


async def _keep_open(response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    return response


def authorization(api_key: str | None, token: str | None) -> str:
    """Return the Authorization field of an API key or a static token."""
    if (api_key is None) == (token is None):
        raise ValueError("Give either api_key or token.")
    secret = ((api_key if api_key is not None else token) or "").strip()  # a file ends with a line break
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ValueError("An API key or token is one word of visible ASCII characters.")
    return f"apikey {secret}" if api_key is not None else f"Bearer {secret}"


def _check_address(base_url: str) -> None:
    scheme, _, rest = base_url.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if scheme not in {"https", "http"} or not host:
        raise ValueError("The address begins with https:// and a host.")
    if scheme == "http" and host not in _LOOPBACK:
        raise ValueError("A credential is sent over https only, or over http to this machine itself.")
