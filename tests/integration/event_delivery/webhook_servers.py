"""A webhook server on loopback that verifies signatures, and events in the outbox of a database."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
from aiohttp import web
from standardwebhooks import Webhook

from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.event_delivery.delivery import Delivery
from mailwarden.event_delivery.model import Kind, NewReceiver, Receiver
from mailwarden.event_delivery.opening import open_channels, open_receivers
from mailwarden.event_delivery.senders import Channels
from mailwarden.event_delivery.store import ReceiverStore
from mailwarden.events.catalogue import KeyRevoked
from mailwarden.events.outbox import new_event, record
from mailwarden.events.reader import EventReader
from mailwarden.model.scope import Actor, Scope
from mailwarden.telemetry.metrics import Metrics

ALL = Scope.deployment()
ROOT = Actor("user:root")
PEPPER = KeyRing.of(b"p" * 32)
LOOPBACK = ("127.0.0.0/8",)


class WebhookServer:
    """Acknowledges webhooks; `status` and `delay` make it a bad one. `seen` has the parsed bodies in their order."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.signatures: list[str] = []
        self.secret = ""
        self.status = 204
        self.delay = 0.0
        self.refused_subjects: set[str] = set()
        self.refused_once: set[str] = set()  # ids
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def start(self) -> None:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post("/hook", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def wait_for(self, number: int, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while len(self.seen) < number:
                await asyncio.sleep(0.02)

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        await asyncio.sleep(self.delay)
        if self.secret:
            Webhook(self.secret).verify(body, dict(request.headers))
        document = msgspec.json.decode(body)
        if document.get("id") in self.refused_once:
            self.refused_once.discard(document["id"])
            return web.Response(status=500)
        if self.status != 204 or document.get("subject") in self.refused_subjects:
            return web.Response(status=self.status if self.status != 204 else 500)
        self.seen.append(document)
        self.ids.append(request.headers["webhook-id"])
        self.signatures.append(request.headers["webhook-signature"])
        return web.Response(status=204)


class Outbox:
    """The outbox and the receivers of one database."""

    def __init__(self, database: Database, channels: Channels) -> None:
        self.database = database
        self.channels = channels
        self.service = open_receivers(database, PEPPER)
        self.store = ReceiverStore(database)
        self.reader = EventReader(database)

    async def add(self, server: WebhookServer, **settings: Any) -> Receiver:
        """Add a webhook of the deployment for the server, which verifies with its secret from now on."""
        wanted = NewReceiver(name=f"hook {uuid4().hex[:6]}", kind=Kind.WEBHOOK, url=server.url, **settings)
        receiver, server.secret = await self.service.add(ALL, wanted, ROOT)
        return receiver

    async def hand_over(self, receiver: Receiver, tenant: UUID) -> None:
        """Make it a receiver of a tenant, which cannot be added with a loopback address."""
        async with self.database.connection() as connection:
            await connection.execute("UPDATE event_receivers SET tenants = $2 WHERE uid = $1", receiver.uid, [tenant])

    async def emit(self, number: int, subjects: int = 1, tenant: UUID | None = None) -> Sequence[str]:
        """Record events whose name is their number; return the ids in their order."""
        events = [
            new_event(KeyRevoked("k1", str(each), by="user:root"), tenant, f"s{each % subjects}")
            for each in range(number)
        ]
        async with self.database.connection() as connection, connection.transaction():
            await record(connection, events)
        return [str(event.id) for event in events]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Delivery]:
        delivery = Delivery(self.store, self.reader, self.channels, Metrics())
        delivery.start()
        try:
            yield delivery
        finally:
            await delivery.stop()


@asynccontextmanager
async def open_outbox(database: Database, folder: Path) -> AsyncIterator[Outbox]:
    async with open_channels(AddressRules.of(LOOPBACK), None, folder / "events", PEPPER) as channels:
        yield Outbox(database, channels)


def numbers_by_subject(seen: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the numbers of `emit` for each subject, in the order of arrival."""
    found: dict[str, list[int]] = {}
    for document in seen:
        found.setdefault(document["subject"], []).append(int(document["data"]["name"]))
    return found
