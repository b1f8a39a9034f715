"""The port of the scan source `smtp`: who may connect, how many at once, and an orderly stop."""

import asyncio
import logging
import socket
import time
from contextlib import suppress
from typing import cast

from mailwarden.guard.smtp.session import Desk, Greeting, SmtpSession
from mailwarden.serving.port import open_port
from mailwarden.settings.networks import Networks, peer_address
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

SLACK_SECONDS = 60.0

log = get_logger(__name__)


class SmtpListener:
    def __init__(self, source: Desk, hostname: str, patience: float, metrics: Metrics) -> None:
        settings = source.settings
        self._source = source
        self._hostname = hostname
        self._greeting = Greeting(hostname, settings.max_message_size)
        self._networks = Networks.of(settings.clients)
        # aiosmtpd's own timer, should all others fail: longer than everything that one command may take.
        waits = settings.command_timeout + settings.data_timeout + 4 * settings.next_hop_timeout
        self._backstop = waits / 1000 + patience + SLACK_SECONDS
        self._sessions: set[DoorSession] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._stopped_at = 0.0
        self._server: asyncio.Server | None = None
        metrics.gauge("smtp_sessions", "SMTP sessions open.").set_function(lambda: len(self._sessions))

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        logging.getLogger("mail.log").setLevel(logging.CRITICAL)  # aiosmtpd writes addresses there
        listen = self._source.settings.listen
        self._server = await open_port(self._make, listen)
        log.info("listening", host=listen.host, port=self.port, source=self._source.name)

    def close_doors(self) -> None:
        """Take no new message; who waits for nothing is sent away, and messages in hand are finished."""
        if self._source.stopping:
            return
        self._source.stopping = True
        self._stopped_at = time.monotonic()
        if self._server is not None:
            self._server.close()
        for session in tuple(self._sessions):
            session.leave()

    async def stop(self, grace: float) -> None:
        """Wait for the messages in hand until the grace period is over, counted from when the doors were closed."""
        self.close_doors()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._stopped_at + grace - time.monotonic(), 0.0)):
                await self._empty.wait()
        for session in tuple(self._sessions):
            session.abort()

    def refusal(self, session: "DoorSession", address: str) -> bytes | None:
        """Return why a client is not let in, or None where it is."""
        client = peer_address(address)
        if client is None or client not in self._networks:
            log.warning("smtp_client_refused", client=address)
            return b"554 5.7.1 Not from here\r\n"
        if self._source.stopping:
            return b"421 4.3.2 guard is stopping; try again\r\n"
        if len(self._sessions) >= self._source.settings.max_connections:
            return b"421 4.3.2 Too many sessions; try again\r\n"
        self._sessions.add(session)
        self._empty.clear()
        return None

    def forget(self, session: "DoorSession") -> None:
        self._sessions.discard(session)
        if not self._sessions:
            self._empty.set()

    def _make(self) -> "DoorSession":
        return DoorSession(self, self._source, self._greeting, self._hostname, self._backstop)


class DoorSession(SmtpSession):
    """A session that begins only if the door lets it in."""

    def __init__(self, door: SmtpListener, source: Desk, greeting: Greeting, hostname: str, backstop: float) -> None:
        super().__init__(source, greeting, hostname, backstop)
        self._door = door
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername") or ("",)
        refusal = self._door.refusal(self, str(peer[0]))
        if refusal is None:
            super().connection_made(transport)
            return
        self._refused = True
        cast("asyncio.Transport", transport).write(refusal)
        transport.close()

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._refused else super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._door.forget(self)
        if not self._refused:
            super().connection_lost(error)

    def abort(self) -> None:
        if self.transport is not None:
            cast("asyncio.Transport", self.transport).abort()


def greeting_name(name: str) -> str:
    """Return the name that guard gives itself in SMTP: one that is a domain, or the host's own."""
    name = name or socket.gethostname()
    return name if name.isascii() and name.replace(".", "").replace("-", "").isalnum() else "guard.localhost"
