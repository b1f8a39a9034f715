"""Two tenants with a quarantine in PostgreSQL and a folder, and a sink for released messages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.model import HeldMessage, RetentionDays
from mailwarden.quarantine.release import ReleaseJob
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.retention import QuarantineRetention
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from tests.integration.held_messages import RAW, finished

ALL = Scope.deployment()
ANN = Actor("person:ann", "192.0.2.1", "r1")


class Sink:
    """Accepts released messages except for the recipients in `refused`."""

    def __init__(self) -> None:
        self.taken: list[tuple[tuple[str, ...], bytes]] = []
        self.refused: dict[str, str] = {}
        self.heard: list[tuple[UUID, bytes, str]] = []

    async def inject(self, _: HeldMessage, recipients: Sequence[str], raw: Spooled) -> Mapping[str, str]:
        good = tuple(each for each in recipients if each not in self.refused)
        if good:
            self.taken.append((good, raw.data()))
        return {each: self.refused[each] for each in recipients if each in self.refused}

    async def released(self, message: HeldMessage, raw: Spooled, requested_by: str) -> None:
        self.heard.append((message.ggrid, raw.data(), requested_by))


class QuarantineSetup:
    DAYS = RetentionDays(30, {"malware": 14})

    def __init__(self, database: Database, folder: Path, tenants: Sequence[UUID]) -> None:
        self.database = database
        self.folder = folder / "vault"
        self.north, self.south = tenants
        self.vault = Vault(FilesystemStore(self.folder), KeyRing.of(b"k" * 64))
        self.store, self.releases = QuarantineStore(database), ReleaseStore(database)
        self.writer = QuarantineWriter(self.vault, self.store, self.DAYS)
        self.sink = Sink()
        self.releasing = ReleaseJob(self.vault, self.releases, self.sink, spool=folder, listener=self.sink)
        self.retention = QuarantineRetention(self.vault, RetentionStore(database), self.releases, self.DAYS)

    def bodies(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file() and path.name not in ("vault", "owner")]

    async def keep(self, tenant: UUID | None = None, raw: bytes = RAW, **changes: Any) -> UUID:
        return await self.writer.hold(finished(tenant or self.north, **changes), Spooled.of(raw))
