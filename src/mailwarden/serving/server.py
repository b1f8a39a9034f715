"""The hardened HTTP server of both processes: limits on heads, deadlines for slow clients, and an orderly stop.

Security: reads hostile bytes with aiohttp's parser. This module adds a deadline for the whole request head, a limit on
connections, and parser errors in our format.
"""

import asyncio
import errno
import math
import os
import secrets
import signal
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from mailwarden.errors import (
    BadRequest,
    ConfigurationError,
    InternalError,
    MailwardenError,
    Overloaded,
    RequestTimeout,
)
from mailwarden.serving import systemd
from mailwarden.serving.http_app import HeadWriter, HttpApp, HttpRequest, finish_headers
from mailwarden.serving.tls import ServerTls
from mailwarden.settings.reload import Changes
from mailwarden.settings.shared import Listen
from mailwarden.telemetry.logs import buffered_logs, get_logger, logging_as
from mailwarden.telemetry.periodic_task import end_tasks

BACKLOG = 1_024
EVERY_ADDRESS = "::"  # every address of this host, IPv4 and IPv6 on one socket (RFC 3493, section 5.3)
_REMEDIES = {
    errno.EADDRINUSE: "Another process has this port: end it, or choose another in `listen.port`.",
    errno.EADDRNOTAVAIL: "This host has no such address: set `listen.host`.",
    errno.EACCES: "This user may not take this port: choose one from 1024 on in `listen.port`.",
}

KEEP_ALIVE_SECONDS = 75.0
HANDSHAKE_SECONDS = 10.0
LAST_WRITE_SECONDS = 1.0  # for responses that are not yet written when the server stops
MAX_LINE = 8_190
MAX_HEADERS = 64

log = get_logger("server")


async def open_port(
    make: Callable[[], asyncio.BaseProtocol],
    listen: Listen,
    ssl_context: ssl.SSLContext | None = None,
    handshake_timeout: float | None = None,
) -> asyncio.Server:
    """Listen on the configured address; raise ConfigurationError with the remedy if the port is not available."""
    loop = asyncio.get_running_loop()
    try:
        if listen.host == EVERY_ADDRESS and socket.has_dualstack_ipv6():
            both = socket.create_server((listen.host, listen.port), family=socket.AF_INET6, dualstack_ipv6=True)
            both.setblocking(False)
            return await loop.create_server(
                make, sock=both, ssl=ssl_context, ssl_handshake_timeout=handshake_timeout, backlog=BACKLOG
            )
        return await loop.create_server(
            make, listen.host, listen.port, ssl=ssl_context, ssl_handshake_timeout=handshake_timeout, backlog=BACKLOG
        )
    except socket.gaierror as error:
        reason, remedy = error.strerror, "Set `listen.host` to an address of this host."
    except OSError as error:
        # The event loop adds text to the system's message.
        reason = os.strerror(error.errno) if error.errno else str(error)
        remedy = _REMEDIES.get(error.errno or 0, "Set `listen.host` and `listen.port`.")
    raise ConfigurationError(f"Cannot listen on {listen.host} port {listen.port}: {reason}. {remedy}")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one process for its clients."""

    header_timeout_ms: int = 15_000
    max_connections: int = 10_000
    max_connections_per_address: int | None = None  # None: only `max_connections` applies
    max_headers: int = MAX_HEADERS
    max_age: float | None = None  # seconds after which a connection closes with its next answer


class Server(web.Server):
    """Creates the connections of one listener, and counts them."""

    def __init__(self, app: HttpApp, limits: Limits) -> None:
        super().__init__(self._answer, request_factory=self._make, handler_cancellation=app.ends_with_caller)
        self._app = app
        self._limits = limits
        self._open = 0
        self._by_address: Counter[str] = Counter()

    def admit(self, address: str | None) -> str | None:
        """Count a connection of this address, and return the limit that it exceeds, or None."""
        self._open += 1
        if address is not None:
            self._by_address[address] += 1
        if self._open > self._limits.max_connections:
            return "total"
        most = self._limits.max_connections_per_address
        if address is not None and most is not None and self._by_address[address] > most:
            return "address"
        return None

    def forget(self, address: str | None) -> None:
        self._open -= 1
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def __call__(self) -> "Connection":
        return Connection(self, self._app, self._limits)

    def _make(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> HttpRequest:
        """Create the request of a complete head: aiohttp calls this between the parser and the handler."""
        assert isinstance(protocol, Connection)
        protocol.on_head()
        if message.method == "HEAD":
            writer = cast("AbstractStreamWriter", HeadWriter(writer))
        return HttpRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        try:
            response = await self._app.answer(request)
            if connection.is_old and not response.prepared:
                response.force_close()
            return response
        finally:
            connection.on_answer(more_follows=not request.content.is_eof())


class Connection(web.RequestHandler):
    """One connection of aiohttp, with a deadline for every request head and errors in our format."""

    __slots__ = (
        "_address",
        "_admitted",
        "_app",
        "_between",
        "_head_bytes",
        "_head_ended",
        "_head_tail",
        "_head_timer",
        "_header_timeout",
        "_old_at",
        "_server",
    )

    def __init__(self, server: Server, app: HttpApp, limits: Limits) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            access_log=None,  # type: ignore[arg-type]  # HttpApp writes the log line
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=limits.max_headers,
            auto_decompress=False,
        )
        self._server = server
        self._app = app
        self._header_timeout = limits.header_timeout_ms / 1000
        self._old_at = math.inf if limits.max_age is None else time.monotonic() + limits.max_age
        self._between = True  # between two requests, or before the first: the next bytes belong to a head
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._head_tail = b""
        self._head_ended = False
        self._address: str | None = None
        self._admitted = False  # whether the connection is counted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._start_head_timer()
        self._address = self._app.counted_address(transport)
        self._admitted = True
        refused = self._server.admit(self._address)
        if refused is not None:
            self._app.refused_connections.labels(refused).inc()
            self._refuse(Overloaded("Too many connections; close some, or try again later."))

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_timer()
        if self._admitted:
            self._admitted = False
            self._server.forget(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the parser; count the bytes of a head until its end.

        The end is detected here, because aiohttp reports a whole head later, in its own task: on a busy machine parts
        of the body arrive before that.
        """
        if self._between and not self._head_ended and self._head_bytes > self._app.max_head:
            self._refuse(BadRequest("The request's head is too large."))
            return
        super().data_received(data)
        if self._between and data and not self._head_ended:
            self._count_head(data)
            if self._head_timer is None:
                self._start_head_timer()

    def _count_head(self, data: bytes) -> None:
        """Count bytes of a head; an empty line ends it (RFC 9112, section 2.1), empty lines before it do not."""
        if not self._head_bytes:
            data = data.lstrip(b"\r\n")
        self._head_bytes += len(data)
        end = self._head_tail + data
        self._head_ended = b"\n\r\n" in end or b"\n\n" in end
        self._head_tail = end[-2:]

    @property
    def is_old(self) -> bool:
        return time.monotonic() > self._old_at

    def on_head(self) -> None:
        """Record that a whole request head has arrived."""
        self._between = False
        self._stop_head_timer()

    def on_answer(self, *, more_follows: bool) -> None:
        """Record the end of a response; if more of the request's body follows, the connection closes."""
        self._between = not more_follows

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Respond to bytes that aiohttp cannot parse as a request."""
        if request.writer.output_size > 0:
            raise ConnectionError("The response has begun; another cannot follow.")
        error = BadRequest("Malformed HTTP request.") if status < 500 else InternalError("")
        request_id = secrets.token_hex(8)
        log.info("request_rejected", request_id=request_id, error=error.code, reason=type(exc).__name__)
        response = self._app.answer_for(error)
        finish_headers(response, request_id, "", self._app.headers)
        response.force_close()
        return response

    def _start_head_timer(self) -> None:
        self._head_timer = asyncio.get_running_loop().call_later(self._header_timeout, self._on_slow_head)

    def _stop_head_timer(self) -> None:
        self._head_bytes = 0
        self._head_tail = b""
        self._head_ended = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_slow_head(self) -> None:
        self._head_timer = None
        if self._head_bytes:
            self._refuse(RequestTimeout("The request's head did not come in time."))
        else:
            self.force_close()

    def _refuse(self, error: MailwardenError) -> None:
        """Send an error response before there is a request, and close the connection."""
        request_id = secrets.token_hex(8)
        log.info("request_rejected", request_id=request_id, error=error.code)
        response = self._app.answer_for(error)
        body = response.body if isinstance(response.body, bytes) else b""
        head = f"HTTP/1.1 {response.status} {response.reason}\r\n"
        finish_headers(response, request_id, "", self._app.headers)
        response.headers["Content-Length"] = str(len(body))
        response.headers["Connection"] = "close"
        head += "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
        if self.transport is not None:
            self.transport.write(head.encode() + b"\r\n" + body)
        self.force_close()


@asynccontextmanager
async def serving(
    app: HttpApp,
    listen: Listen,
    ssl_context: ssl.SSLContext | None,
    limits: Limits,
    *,
    grace_ms: int = 1_000,
    inherited: socket.socket | None = None,
) -> AsyncIterator[int]:
    """Listen while the block runs, and yield the port; then finish open requests within the grace period.

    A socket that systemd opened takes the place of the configured address.
    """
    server = Server(app, limits)
    handshake = HANDSHAKE_SECONDS if ssl_context else None
    if inherited is not None:
        listener = await asyncio.get_running_loop().create_server(
            server, sock=inherited, ssl=ssl_context, ssl_handshake_timeout=handshake
        )
    else:
        listener = await open_port(server, listen, ssl_context, handshake)
    host, port = listener.sockets[0].getsockname()[:2]
    log.info("listening", host=host, port=port, tls=ssl_context is not None)
    try:
        yield port
    finally:
        listener.close()
        await app.stop(grace_ms / 1000)
        server.pre_shutdown()
        await server.shutdown(LAST_WRITE_SECONDS)
        log.info("stopped", unfinished=app.in_hand)


@dataclass(frozen=True, slots=True)
class Service:
    """One program with its listener: abby or guard."""

    program: str
    app: HttpApp
    listen: Listen
    tls: ServerTls
    limits: Limits
    grace_ms: int
    reload: Callable[[], Awaitable[Changes]]
    on_stop: Callable[[], None] | None = None  # called when the stop begins


async def serve_until_stopped(*services: Service) -> None:
    """Listen until SIGTERM or SIGINT, then stop in order: all services reject new work, and the last one ends first.

    SIGHUP reads the certificates of the listeners and the settings again. One reload runs at a time; a signal during a
    reload starts another one.
    """
    loop = asyncio.get_running_loop()
    asked, changed = asyncio.Event(), asyncio.Event()
    reloading = asyncio.create_task(_reload_on(changed, services))
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, asked.set)
    loop.add_signal_handler(signal.SIGHUP, changed.set)
    try:
        async with AsyncExitStack() as stack:
            for service in services:
                unit = f"mailwarden-{service.program}.socket" if len(services) > 1 else ""
                await stack.enter_async_context(_listening(service, systemd.inherited_socket(unit)))
            with buffered_logs():
                async with systemd.running():
                    await asked.wait()
            for service in services:
                _begin_stop(service)
    finally:
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(name)
        await end_tasks(reloading)


@asynccontextmanager
async def _listening(service: Service, inherited: socket.socket | None) -> AsyncIterator[None]:
    listener = serving(
        service.app,
        service.listen,
        service.tls.context,
        service.limits,
        grace_ms=service.grace_ms,
        inherited=inherited,
    )
    with logging_as(service.program):
        await listener.__aenter__()
    try:
        yield
    finally:
        with logging_as(service.program):
            await listener.__aexit__(None, None, None)


def _begin_stop(service: Service) -> None:
    with logging_as(service.program):
        log.info("stopping", in_hand=service.app.in_hand)
        service.app.close()
        if service.on_stop is not None:
            service.on_stop()


async def _reload_on(changed: asyncio.Event, services: Sequence[Service]) -> None:
    while True:
        await changed.wait()
        changed.clear()
        systemd.notify_reloading()
        for service in services:
            with logging_as(service.program):
                _reload_certificate(service.tls)
                await _reload_settings(service.reload)
        systemd.notify("READY=1")


async def _reload_settings(reload: Callable[[], Awaitable[Changes]]) -> None:
    """Use the changed settings; an invalid file changes nothing."""
    try:
        changes = await reload()
    except MailwardenError as error:
        log.warning("settings_not_reloaded", reason=error.message, advice="The old settings stay in use.")
    except Exception:
        log.exception("settings_not_reloaded", advice="The old settings stay in use.")
    else:
        log.info("settings_reloaded", changed=changes.reloaded, restart_needed=changes.restart)


def _reload_certificate(tls: ServerTls) -> None:
    try:
        tls.reload()
    except ConfigurationError as error:
        log.warning("certificate_not_reloaded", reason=error.message, advice="The old one stays in use.")
    else:
        log.info("certificate_reloaded")
