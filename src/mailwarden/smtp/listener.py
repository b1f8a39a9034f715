"""The SMTP port: its permitted clients, the number of sessions, and an orderly stop."""

import asyncio
import socket
import time
from contextlib import suppress
from typing import cast

from mailwarden.serving.server import open_port
from mailwarden.settings.shared import Networks, peer_address
from mailwarden.smtp.reader import PIECE
from mailwarden.smtp.session import STOPPING, Receiver, SmtpSession
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

CANCEL_SECONDS = 3.0  # a stop waits no longer for sessions that are cancelled
SLACK_SECONDS = 60.0

log = get_logger(__name__)


class SmtpListener:
    """The port: the clients that may connect, how many at once, and an orderly stop."""

    def __init__(self, receiver: Receiver, hostname: str, analysis_timeout: float, metrics: Metrics) -> None:
        """Serve on behalf of the receiver, whose analysis of a message takes up to `analysis_timeout` seconds."""
        settings = receiver.settings
        self.receiver = receiver
        self.hostname = hostname
        # Longer than everything one command may take: a backstop in case another timeout fails.
        waits = settings.command_timeout + settings.data_timeout + 4 * settings.next_hop_timeout
        self.deadline = waits / 1000 + analysis_timeout + SLACK_SECONDS
        self._networks = Networks.of(settings.clients)
        self._connections: set[SmtpConnection] = set()
        self._running: set[asyncio.Task[None]] = set()  # sessions, also those that end after their connection
        self._empty = asyncio.Event()
        self._empty.set()
        self._stopped_at = 0.0
        self._server: asyncio.Server | None = None
        metrics.gauge("smtp_sessions", "SMTP sessions open.").set_function(lambda: len(self._connections))
        metrics.gauge("smtp_sessions_limit", "SMTP sessions that may be open.").set(settings.max_connections)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        listen = self.receiver.settings.listen
        self._server = await open_port(lambda: SmtpConnection(self), listen)
        log.info("listening", host=listen.host, port=self.port, source=self.receiver.name)

    def close(self) -> None:
        """Accept no new message: idle clients get 421, and running transactions are completed."""
        if self.receiver.stopping:
            return
        self.receiver.stopping = True
        self._stopped_at = time.monotonic()
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.leave()

    async def stop(self, grace: float) -> None:
        """Wait for running transactions until the grace period is over, counted from `close`.

        Then cancel them, and wait a little more: a cancelled session may leave rows for the journal, which closes next.
        """
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._stopped_at + grace - time.monotonic(), 0.0)):
                await self._empty.wait()
        for connection in tuple(self._connections):
            connection.abort()
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=CANCEL_SECONDS)

    def run(self, session: SmtpSession) -> asyncio.Task[None]:
        running = asyncio.get_running_loop().create_task(session.run())
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return running

    def admit(self, connection: "SmtpConnection", address: str) -> str | None:
        """Count a connection and return None, or return the reply that rejects it."""
        client = peer_address(address)
        if client is None or client not in self._networks:
            log.warning("smtp_client_refused", client=address)
            return "554 5.7.1 Client not allowed"  # RFC 5321, section 3.1: 554 in place of 220
        if self.receiver.stopping:
            return STOPPING
        if len(self._connections) >= self.receiver.settings.max_connections:
            return "421 4.3.2 Too many sessions; try again"
        self._connections.add(connection)
        self._empty.clear()
        return None

    def forget(self, connection: "SmtpConnection") -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()


class SmtpConnection(asyncio.StreamReaderProtocol):
    """One connection: its session runs while the client is connected, and is cancelled on disconnect.

    A client that hangs up before the reply still has the message and sends it again (RFC 5321, section 4.5.4.1), so
    guard stops working on it.
    """

    def __init__(self, listener: SmtpListener) -> None:
        super().__init__(asyncio.StreamReader(limit=PIECE), self._begin)
        self._listener = listener
        self._admitted = False
        self._session: SmtpSession | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._running: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername") or ("",)
        rejection = self._listener.admit(self, str(peer[0]))
        if rejection is None:
            self._admitted = True
            super().connection_made(transport)
            return
        cast("asyncio.Transport", transport).write(f"{rejection}\r\n".encode())
        transport.close()

    def data_received(self, data: bytes) -> None:
        if self._admitted:
            super().data_received(data)

    def eof_received(self) -> bool | None:
        """End the session; returning False closes the connection, also where the session has not begun to run."""
        self._cancel()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.forget(self)
        self._cancel()
        if self._admitted:
            super().connection_lost(error)

    def leave(self) -> None:
        if self._session is not None:
            self._session.leave()

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listener = self._listener
        self._writer = writer
        self._session = SmtpSession(listener.receiver, listener.hostname, listener.deadline, reader, writer)
        self._running = listener.run(self._session)

    def _cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()


def greeting_name(name: str) -> str:
    """Return guard's name in SMTP: a valid domain, or guard.localhost."""
    name = name or socket.gethostname()
    return name if name.isascii() and name.replace(".", "").replace("-", "").isalnum() else "guard.localhost"
