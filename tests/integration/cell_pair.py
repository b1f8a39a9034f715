"""Two cells with a database and a vault each, a directory, and a tenant that moves between them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from mailwarden.access.tenants import TenantStore
from mailwarden.cells.move import CellAccess, TenantMove
from mailwarden.cells.store import DirectoryStore
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.events.judged import JudgedEvents
from mailwarden.history import open_history
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.store import HistoryStore
from mailwarden.lists.service import Lists
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Actor, Scope
from mailwarden.model.tenant import Tenant
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from mailwarden.wire.lists import ListEntryInput
from rig.engines import Engines
from tests.databases import ReusedDatabases
from tests.integration.held_messages import RAW, finished

ALL = Scope.deployment()
ACTOR = Actor("test")
RING = KeyRing.of(b"0" * 64)
LIST = "url-allow"


@dataclass(frozen=True)
class OneCell:
    name: str
    database: Database
    access: CellAccess

    @property
    def history(self) -> HistoryStore:
        return open_history(self.database, JudgedEvents(), clickhouse=self.access.clickhouse)

    @property
    def lists(self) -> Lists:
        return Lists(ListStore(self.database, self.database))

    async def entries(self, tenant: UUID) -> set[str]:
        lines: list[bytes] = []

        async def take(line: bytes) -> None:
            lines.append(line)

        async with self.lists.reading(ListScope(tenant), LIST) as reading:
            await reading.copy_to(take)
        return {line.split(b'"')[3].decode() for line in b"".join(lines).splitlines() if line}

    async def add(self, tenant: UUID, *entries: str) -> None:
        await self.lists.add_entries(ListScope(tenant), LIST, [ListEntryInput(each) for each in entries], ACTOR)

    async def hold(self, tenant: UUID, raw: bytes = RAW) -> UUID:
        writer = QuarantineWriter(self.access.vault, QuarantineStore(self.database), RetentionDays())
        return await writer.hold(finished(tenant, raw=raw), Spooled.of(raw))

    async def held(self, tenant: UUID) -> set[UUID]:
        return {each.uid for each in await QuarantineStore(self.database).page(Scope.of(tenant), limit=500)}


@dataclass(frozen=True)
class Pair:
    a: OneCell
    b: OneCell
    directory: DirectoryStore
    tenant: Tenant

    @property
    def uid(self) -> UUID:
        return self.tenant.uid

    def move(self, *, back: bool = False) -> TenantMove:
        source, target = (self.b, self.a) if back else (self.a, self.b)
        return TenantMove(source.access, target.access, self.directory, self.uid, lambda _: None)


@asynccontextmanager
async def open_pair(
    engines: Engines,
    reused_databases: ReusedDatabases,
    tmp_path: Path,
    clickhouses: Sequence[Clickhouse | None] = (None, None),
) -> AsyncIterator[Pair]:
    """Return two cells; the tenant north is in the first. `clickhouses` are where they have their history."""
    names = [reused_databases.take() for _ in range(3)]
    databases = [Database(engines.postgresql.url(name)) for name in names]
    cells = []
    for name, database, label, clickhouse in zip(names, databases, "ab", clickhouses, strict=False):
        spool = tmp_path / f"{label}-spool"
        spool.mkdir()
        vault = Vault(FilesystemStore(tmp_path / f"{label}-vault"), RING)
        access = CellAccess(label, engines.postgresql.url(name), vault, spool, clickhouse)
        cells.append(OneCell(label, database, access))
    tenant = await TenantStore(databases[0]).create(ALL, "north", ["north.example"])
    yield Pair(cells[0], cells[1], DirectoryStore(databases[2]), tenant)
    for database in databases:
        await database.close()
    for name in names:
        reused_databases.give_back(name)


async def interrupted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a move end before the switch: the old cell has `leaving`, the new one the whole copy."""

    async def fails(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(TenantMove, "_switch", fails)
        with pytest.raises(RuntimeError):
            await pair.move().run(ACTOR)
