"""A scan source `smtp` without an analysis: it records every message; with a listener and a client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from mailwarden.model.tenant import AssignedBy, Assignment
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.smtp.commands import Rejection
from mailwarden.smtp.listener import SmtpListener
from mailwarden.smtp.session import Transaction
from mailwarden.smtp.settings import Smtp, SmtpListen
from mailwarden.telemetry.metrics import Metrics
from tests.integration.smtp_client import SmtpClient


class RecordingSource:
    """Accepts and records every message."""

    name = "smtp"

    def __init__(self, folder: Path, **settings: object) -> None:
        self.settings = Smtp(listen=SmtpListen(port=0), **settings)  # type: ignore[arg-type]
        self.stopping = False
        self.full = False
        self.taken: list[tuple[Transaction, bytes]] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self._folder = folder

    def assign(self, recipient: str) -> Assignment:
        domain = recipient.rpartition("@")[2]
        number = int(domain.removeprefix("t").partition(".")[0]) if domain.startswith("t") else 0
        return Assignment(UUID(int=number), AssignedBy.DOMAINS)

    def require_room(self) -> None:
        if self.full:
            raise Rejection("451 4.3.2 Full")

    def spool(self) -> SpoolWriter:
        return SpoolWriter(self._folder)

    async def take(self, transaction: Transaction, raw: Spooled) -> str:
        self.started.set()
        try:
            await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if raw.data().startswith(b"Subject: bug"):
            raise RuntimeError("a bug")
        self.taken.append((transaction, raw.data()))
        return "250 2.0.0 Taken"


@asynccontextmanager
async def run_listener(source: RecordingSource) -> AsyncIterator[SmtpListener]:
    listener = SmtpListener(source, "guard.example", 1.0, Metrics())
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop(0.5)


@asynccontextmanager
async def open_smtp(folder: Path, **settings: object) -> AsyncIterator[tuple[SmtpClient, RecordingSource]]:
    source = RecordingSource(folder, **settings)
    async with run_listener(source) as listener, SmtpClient(listener.port) as client:
        yield client, source
