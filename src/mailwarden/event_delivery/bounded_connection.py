"""HTTP connections that read a bounded number of bytes for each exchange.

A deadline alone does not bound the work: within it a receiver on a fast network could send interim responses (1xx),
chunk extensions or responses without a request, which aiohttp reads without a limit and keeps in a queue.

Security: hostile responses pass through here.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import cast

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler

MAX_INTERIM = 20  # responses with 1xx before the final one
_SocketFactory = Callable[[tuple[int, int, int, str, tuple[object, ...]]], socket.socket]


class BoundedProtocol(ResponseHandler):
    """Aborts the connection when one exchange has more bytes or more interim responses than allowed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_bytes: int) -> None:
        super().__init__(loop)
        self._max_bytes = max_bytes
        self._bytes_left = max_bytes
        self._interim_left = MAX_INTERIM

    def set_response_params(self, **parameters: object) -> None:
        """Begin an exchange: the connector calls it for each request."""
        self._bytes_left, self._interim_left = self._max_bytes, MAX_INTERIM
        super().set_response_params(**parameters)  # type: ignore[arg-type]  # of another version of aiohttp perhaps

    def data_received(self, data: bytes) -> None:
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            self._refuse(f"it sent more than {self._max_bytes:,} bytes")
        elif self._interim_left >= 0:
            super().data_received(data)

    def feed_data(self, data: object, size: int = 0) -> None:
        message = data[0] if isinstance(data, tuple) else None
        if message is not None and 100 <= message.code < 200:
            self._interim_left -= 1
        if self._interim_left >= 0:
            super().feed_data(data, size)  # type: ignore[arg-type]  # a message and its body
        else:
            self._refuse(f"it sent more than {MAX_INTERIM} interim responses")

    def _refuse(self, sentence: str) -> None:
        error = aiohttp.ClientOSError(errno.EMSGSIZE, sentence)
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()
            if self._payload is not None:
                self._payload.set_exception(error)
            self.set_exception(error)


class BoundedConnector(aiohttp.TCPConnector):
    """Connects to checked addresses alone, with bounded connections."""

    def __init__(
        self,
        trust: ssl.SSLContext,
        resolver: AbstractResolver,
        socket_factory: _SocketFactory,
        *,
        keep_alive: float,
        max_bytes: int,
    ) -> None:
        super().__init__(
            ssl=trust,
            resolver=resolver,
            use_dns_cache=False,  # each connection resolves the name again, and checks the answer
            limit=0,  # the lanes of each receiver are the bound
            keepalive_timeout=keep_alive,
            socket_factory=socket_factory,
        )
        self._factory = cast("partial[ResponseHandler]", partial(BoundedProtocol, self._loop, max_bytes))
