"""Two tenants with digests, an SMTP sink for them, and the jobs of guard and services of abby."""

import base64
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from pathlib import Path
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from mailwarden.access.tenant_store import TenantSettings, TenantStore
from mailwarden.access.tenants import TenantDirectory
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.digest import DigestLink
from mailwarden.quarantine.digest_links import DigestLinkService, DigestLinkSigner
from mailwarden.quarantine.digest_mail import Digests, DigestWriter
from mailwarden.quarantine.digest_store import DigestStore
from mailwarden.quarantine.model import HeldMessage, RetentionDays
from mailwarden.quarantine.release import ReleaseJob
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.settings import DigestSettings
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.client import NextHop
from mailwarden.telemetry.metrics import Metrics
from tests.integration.held_messages import RAW, finished
from tests.integration.rejecting_sink import RejectingSink

ALL = Scope.deployment()
ANN, BOB = "ann@north.example", "bob@north.example"
STRANGER = Actor("digest", "192.0.2.1", "r1")
SEAL = DigestLinkSigner(KeyRing.of(b"k" * 64))
SETTINGS = DigestSettings("quarantine@north.example", "https://mail.example", max_messages=3)
MORNING = (datetime.now(UTC) + timedelta(days=1)).replace(hour=7, minute=0, second=1, microsecond=0)


class DigestSink(RejectingSink):
    """An SMTP server that stores digests."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[str, tuple[str, ...], bytes]] = []

    async def handle_DATA(self, _: object, __: object, envelope: Any) -> str:  # noqa: N802
        self.taken.append((envelope.mail_from, tuple(envelope.rcpt_tos), envelope.content))
        return "250 2.0.0 Ok"

    def take_texts(self) -> dict[str, str]:
        """Return the plain text of each recipient's digest, and clear the sink."""
        texts = {recipients[0]: _plain(content) for _, recipients, content in self.taken}
        assert len(texts) == len(self.taken)
        self.taken.clear()
        return texts


def _plain(content: bytes) -> str:
    first: Any = message_from_bytes(content).get_payload(0)
    return base64.b64decode(first.get_payload()).decode()


def tokens(text: str) -> list[str]:
    return re.findall(r"https://mail\.example/held/(\S{84})\n", text)


class Listener:
    def __init__(self) -> None:
        self.taken: list[tuple[str, ...]] = []
        self.heard: list[str] = []

    async def inject(self, _: HeldMessage, recipients: Sequence[str], __: Spooled) -> dict[str, str]:
        self.taken.append(tuple(recipients))
        return {}

    async def released(self, _: HeldMessage, __: Spooled, requested_by: str) -> None:
        self.heard.append(requested_by)


class DigestSetup:
    def __init__(self, url: str, folder: Path, port: int) -> None:
        self.database = Database(url)
        self.tenants = TenantStore(self.database)
        self.directory = TenantDirectory(self.tenants)
        self.store, self.digest_store = QuarantineStore(self.database), DigestStore(self.database)
        self.vault = Vault(FilesystemStore(folder / "vault"), KeyRing.of(b"k" * 64))
        self.link_service = DigestLinkService(SEAL, self.digest_store)
        self.listener = Listener()
        releases = ReleaseStore(self.database)
        self.releasing = ReleaseJob(self.vault, releases, self.listener, spool=folder, listener=self.listener)
        self.hop = NextHop(("127.0.0.1", port), 5.0, "guard.example")
        self.north = self.south = UUID(int=0)
        self.now = MORNING

    def guard(self, hop: NextHop | None = None, metrics: Metrics | None = None) -> Digests:
        """Return the digest job of another guard; each guard remembers its last day."""
        writer = DigestWriter(SETTINGS, SEAL)
        hop, metrics = hop or self.hop, metrics or Metrics()
        return Digests(
            self.digest_store, writer, hop, self.directory, SETTINGS, metrics=metrics, clock=lambda: self.now
        )

    async def want(self, tenant: UUID, *, wanted: bool = True) -> None:
        (found,) = await self.tenants.list(Scope.of(tenant))
        await self.tenants.change(
            ALL, tenant, replace(TenantSettings.of(found), quarantine_digest=wanted), Actor("cli:root")
        )
        await self.directory.refresh()

    async def keep(self, *recipients: str, tenant: UUID | None = None, tag: str = "", **changes: Any) -> UUID:
        made = finished(tenant or self.north, recipients=recipients or (ANN,), **changes)
        if tag:
            made = replace(made, ruling=replace(made.ruling, tags=(tag,)))
        return await QuarantineWriter(self.vault, self.store, RetentionDays()).hold(made, Spooled.of(RAW))

    async def states(self, uid: UUID) -> list[str]:
        return [each.state for each in (await self.store.find(ALL, uid)).recipients]


def link_to(uid: UUID, number: int = 1) -> str:
    return SEAL.token(DigestLink(uid, number, datetime.now(UTC) + timedelta(days=1)))
