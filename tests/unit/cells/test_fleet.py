"""The directory of cells in memory: which cell is right when two claim a tenant, and a copy that is damaged."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import structlog
from msgspec.structs import replace

from mailwarden.abby.cell_forwarding import strictest
from mailwarden.access.keys import ApiKey
from mailwarden.cells import fleet as fleet_module
from mailwarden.cells.fleet import FleetDirectory
from mailwarden.cells.snapshot import DirectoryChanges, DirectorySnapshot, Place, read_copy, write_copy
from mailwarden.cells.store import DirectoryStore, Publication
from mailwarden.database.pool import Database
from mailwarden.errors import CellDirectoryUnavailable, TenantMoving
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Tenant, TenantState
from mailwarden.telemetry.metrics import Metrics
from mailwarden.wire.scanning import MessageAnalysisResult

NORTH = UUID(int=1)
NOBODY = "postgresql://nobody@127.0.0.1:1/none"


class LocalTenants:
    def __init__(self, *tenants: Tenant) -> None:
        self.tenants = {tenant.uid: tenant for tenant in tenants}
        self.moved: list[tuple[UUID, int, str]] = []
        self.given_up: list[tuple[UUID, int, tuple[str, ...]]] = []
        self.arrives = False
        self.refreshed = 0

    def stored(self) -> Sequence[Tenant]:
        return tuple(self.tenants.values())

    def stored_tenant(self, tenant_uid: UUID) -> Tenant | None:
        return self.tenants.get(tenant_uid)

    def owner_of(self, domain: str) -> Tenant | None:
        return next((each for each in self.tenants.values() if domain in each.domains), None)

    async def refresh(self) -> bool:
        """The move of each arriving tenant ends, if it `arrives`."""
        self.refreshed += 1
        if self.arrives:
            those = self.tenants.items()
            self.tenants = {uid: replace(each, state=TenantState.HERE) for uid, each in those}
        return self.arrives

    async def give_up_domains(self, tenant_uid: UUID, version: int, domains: Sequence[str]) -> None:
        self.given_up.append((tenant_uid, version, tuple(domains)))

    async def mark_moved(self, tenant_uid: UUID, version: int, cell: str) -> None:
        self.moved.append((tenant_uid, version, cell))


class NoKeys:
    async def valid(self, scope: Scope) -> Sequence[ApiKey]:
        return ()


class KnownDirectory(DirectoryStore):
    """A directory that stands in memory, and keeps what is published."""

    def __init__(self, snapshot: DirectorySnapshot | None) -> None:
        super().__init__(Database(NOBODY))
        self.snapshot = snapshot
        self.published: list[Publication] = []

    async def changes(self, since: int | None) -> DirectoryChanges | None:
        if self.snapshot is None:
            return await super().changes(since)
        known = self.snapshot
        return DirectoryChanges(known.version, True, known.tenants, dict(known.domains), dict(known.keys))

    async def publish(self, cell: str, given: Publication) -> None:
        self.published.append(given)


async def fleet(
    path: Path, tenant: Tenant | None, known: DirectorySnapshot | None
) -> tuple[FleetDirectory, KnownDirectory]:
    store = KnownDirectory(known)
    tenants = LocalTenants(*([tenant] if tenant else []))
    made = FleetDirectory("a", store, tenants, NoKeys(), copy=path / "copy", metrics=Metrics())
    await made.start()
    await made.stop()
    return made, store


def directory(cell: str, version: int) -> DirectorySnapshot:
    return DirectorySnapshot(1, {NORTH: Place(cell, version)}, {"north.example": NORTH})


def tenant(state: TenantState, version: int) -> Tenant:
    return Tenant(NORTH, "north", domains=("north.example",), state=state, place_version=version, other_cell="b")


HERE, LEAVING, MOVED, ARRIVING = (TenantState(each) for each in ("here", "leaving", "moved", "arriving"))


@pytest.mark.parametrize(
    ("own", "known", "expected"),
    [
        (None, directory("b", 0), "b"),
        (None, directory("a", 0), None),
        (tenant(HERE, 0), directory("a", 0), None),
        (tenant(HERE, 2), directory("b", 1), None),  # the directory was restored from a backup
        (tenant(HERE, 0), directory("b", 1), "b"),  # this cell was restored from a backup
        (tenant(LEAVING, 1), directory("b", 1), None),  # it scans until the other cell does
        (tenant(MOVED, 1), directory("b", 1), "b"),
        (tenant(MOVED, 1), directory("a", 0), "b"),  # the directory in memory is older than the move
        (tenant(MOVED, 1), directory("c", 2), "c"),
        (tenant(ARRIVING, 1), directory("b", 0), "b"),
        (tenant(ARRIVING, 1), directory("a", 1), "b"),
    ],
)
async def test_the_higher_version_is_right(
    tmp_path: Path, own: Tenant | None, known: DirectorySnapshot, expected: str | None
) -> None:
    made, _ = await fleet(tmp_path, own, known)
    home = made.home_of_tenant(NORTH)
    assert (home.cell if home else None) == expected
    split = made.split(None, ["ann@north.example", "nobody@other.example"])
    assert split.elsewhere == ({expected: ("ann@north.example",)} if expected else {})
    assert "nobody@other.example" in split.local


async def test_the_copy_on_disk_is_used_while_the_directory_is_down(tmp_path: Path) -> None:
    await fleet(tmp_path, None, directory("b", 3))
    again, _ = await fleet(tmp_path, None, None)
    assert again.split(NORTH, ["ann@north.example"]).elsewhere == {"b": ("ann@north.example",)}


async def test_a_copy_that_cannot_be_written_stops_no_call_and_is_written_later(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()  # a file cannot replace it
    made, store = await fleet(tmp_path, None, directory("b", 3))
    await made.refresh()
    assert made.split(NORTH, ["ann@north.example"]).elsewhere == {"b": ("ann@north.example",)}
    (tmp_path / "copy").rmdir()
    await made.refresh()
    assert read_copy(tmp_path / "copy") == store.snapshot


async def test_without_directory_and_copy_no_other_recipient_is_taken(tmp_path: Path) -> None:
    made, _ = await fleet(tmp_path, tenant(HERE, 0), None)
    assert made.split(None, ["ann@north.example"]).local == ("ann@north.example",)
    with pytest.raises(CellDirectoryUnavailable):
        made.split(None, ["ann@other.example"])
    with pytest.raises(CellDirectoryUnavailable):
        made.split(uuid4(), ["ann@north.example"])


def test_a_damaged_copy_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    write_copy(path, directory("b", 3))
    assert read_copy(path) == directory("b", 3)
    raw = path.read_bytes()
    for broken in (raw[:-1], raw[:-1] + bytes([raw[-1] ^ 1]), b"", raw[20:]):
        path.write_bytes(broken)
        assert read_copy(path) is None


@pytest.mark.parametrize(
    ("own", "known", "expected"),
    [
        (tenant(HERE, 0), DirectorySnapshot(1), {NORTH: 0}),
        (tenant(HERE, 2), directory("b", 1), {NORTH: 2}),  # a restored directory is repaired
        (tenant(HERE, 0), directory("b", 1), {}),
        (tenant(LEAVING, 1), directory("a", 0), {}),
        (tenant(MOVED, 1), directory("a", 0), {}),
    ],
)
async def test_a_cell_publishes_its_own_tenants_alone(
    tmp_path: Path, own: Tenant, known: DirectorySnapshot, expected: dict[UUID, int]
) -> None:
    _, store = await fleet(tmp_path, own, known)
    published = store.published[0].tenants if store.published else {}
    assert published == expected


def result(decision: str, verdict: str = "clean") -> MessageAnalysisResult:
    now = datetime.now(UTC)
    return MessageAnalysisResult(UUID(int=9), now, now + timedelta(seconds=1), decision, verdict, ("a.tag",))


def test_the_strictest_result_is_the_answer_and_loses_no_mail_of_others() -> None:
    assert strictest([result("deliver")]).tags == ("a.tag",)
    both = strictest([result("deliver"), result("quarantine", "spam")])
    assert (both.decision, both.verdict) == ("quarantine", "spam")
    assert "policy.mixed-recipients" in both.tags
    assert strictest([result("deliver"), result("drop", "spam")]).decision == "quarantine"
    assert strictest([result("drop", "spam"), result("drop", "malware")]).decision == "drop"


async def test_a_restored_cell_stores_the_newer_place(tmp_path: Path) -> None:
    tenants = LocalTenants(tenant(HERE, 0))
    store = KnownDirectory(directory("b", 1))
    made = FleetDirectory("a", store, tenants, NoKeys(), copy=tmp_path / "copy", metrics=Metrics())
    await made.refresh()
    await made.publish()
    assert tenants.moved == [(NORTH, 1, "b")]


async def test_keys_of_a_tenant_that_has_just_arrived_are_read_before_any_is_dropped(tmp_path: Path) -> None:
    class ArrivingKeys:
        reads = 0

        async def valid(self, scope: Scope) -> Sequence[ApiKey]:
            self.reads += 1
            return [api_key("arrived")] if self.reads > 1 else []

    known = DirectorySnapshot(1, {NORTH: Place("a", 1)}, {"north.example": NORTH}, {"arrived": "a", "gone": "a"})
    store = KnownDirectory(known)
    tenants = LocalTenants(tenant(HERE, 1))
    made = FleetDirectory("a", store, tenants, ArrivingKeys(), copy=tmp_path / "copy", metrics=Metrics())
    await made.refresh()
    await made.publish()
    assert [each.dropped_keys for each in store.published] == [["gone"]]


async def test_a_domain_that_a_moved_tenant_gave_up_is_not_its_own(tmp_path: Path) -> None:
    without = DirectorySnapshot(1, {NORTH: Place("b", 1)}, {})
    made, _ = await fleet(tmp_path, tenant(MOVED, 1), without)
    assert made.split(None, ["ann@north.example"]).elsewhere == {}


def api_key(key_id: str) -> ApiKey:
    now = datetime.now(UTC)
    return ApiKey(key_id, "north", frozenset(), frozenset({NORTH}), False, (), now, "test")


@pytest.mark.parametrize(
    ("own", "known", "expected"),
    [
        (tenant(MOVED, 1), DirectorySnapshot(1, {NORTH: Place("b", 1)}), True),
        (tenant(MOVED, 1), DirectorySnapshot(1, {NORTH: Place("c", 2)}, {"north.example": UUID(int=2)}), True),
        (tenant(MOVED, 1), directory("b", 1), False),
        (tenant(MOVED, 1), DirectorySnapshot(1, {NORTH: Place("a", 0)}), False),  # older than the move
        (tenant(MOVED, 1), DirectorySnapshot(1), False),
        (tenant(HERE, 1), DirectorySnapshot(1, {NORTH: Place("b", 1)}), False),
        (tenant(ARRIVING, 2), DirectorySnapshot(1, {NORTH: Place("b", 1)}), False),
    ],
)
async def test_a_domain_that_a_moved_tenant_gave_up_is_free(
    own: Tenant, known: DirectorySnapshot, expected: bool, tmp_path: Path
) -> None:
    tenants, store = LocalTenants(own), KnownDirectory(known)
    made = FleetDirectory("a", store, tenants, NoKeys(), copy=tmp_path / "copy", metrics=Metrics())
    await made.refresh()
    await made.publish()
    assert tenants.given_up == ([(NORTH, 1, ("north.example",))] if expected else [])


@pytest.mark.parametrize(
    ("known", "forwarded", "waits"),
    [
        (directory("a", 1), False, True),
        (directory("b", 0), False, False),  # it is copied, and not yet switched
        (directory("b", 0), True, True),  # the other cell knows of the switch
    ],
)
@pytest.mark.parametrize("named", [True, False])
async def test_a_call_waits_for_the_end_of_a_switch(
    known: DirectorySnapshot, forwarded: bool, waits: bool, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "SWITCH_SECONDS", 0.2)
    tenants, store = LocalTenants(tenant(ARRIVING, 1)), KnownDirectory(known)
    made = FleetDirectory("a", store, tenants, NoKeys(), copy=tmp_path / "copy", metrics=Metrics())
    await made.refresh()
    asked = (NORTH, ()) if named else (None, ("ann@north.example",))
    if not waits:
        await made.wait_for_switch(Scope.of(NORTH), *asked, forwarded=forwarded)
        return
    with pytest.raises(TenantMoving):
        await made.wait_for_switch(Scope.of(NORTH), *asked, forwarded=forwarded)
    refreshed = tenants.refreshed
    with pytest.raises(TenantMoving):
        await made.wait_for_switch(Scope.of(NORTH), *asked, forwarded=forwarded)
    assert tenants.refreshed == refreshed, "a move that was killed does not make every call wait"
    monkeypatch.setattr(made, "_wait_again_at", 0.0)
    tenants.arrives = True
    await made.wait_for_switch(Scope.of(NORTH), *asked, forwarded=forwarded)
    assert made.home_of_tenant(NORTH) is None or known == directory("b", 0)
    assert made.has(*asked)


class HangingDirectory(KnownDirectory):
    """A directory that answers once, and never again."""

    reads = 0

    async def changes(self, since: int | None) -> DirectoryChanges | None:
        self.reads += 1
        if self.reads > 1:
            await asyncio.sleep(60.0)
        return await super().changes(since)


async def test_a_directory_that_hangs_holds_up_one_call_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "SWITCH_SECONDS", 0.3)
    monkeypatch.setattr(fleet_module, "SWITCH_POLL", 0.01)
    store = HangingDirectory(directory("b", 0))
    made = FleetDirectory(
        "a", store, LocalTenants(tenant(ARRIVING, 1)), NoKeys(), copy=tmp_path / "c", metrics=Metrics()
    )
    await made.refresh()
    await asyncio.sleep(0.02)
    took: list[float] = []

    async def call() -> None:
        began = time.monotonic()
        await made.wait_for_switch(Scope.of(NORTH), NORTH)
        took.append(time.monotonic() - began)

    await asyncio.gather(*(call() for _ in range(20)))
    assert (sum(each > 0.1 for each in took), store.reads) == (1, 2), took
    for _ in range(3):
        await call()
    assert store.reads == 2, "a read that has just failed is not tried again by each call"
    monkeypatch.setattr(fleet_module, "RETRY_SECONDS", 0.0)
    await call()
    assert store.reads == 3


async def test_a_database_that_does_not_answer_during_a_switch_is_no_error_of_the_service(tmp_path: Path) -> None:
    class Unanswered(LocalTenants):
        async def refresh(self) -> bool:
            raise TimeoutError

    tenants, store = Unanswered(tenant(ARRIVING, 1)), KnownDirectory(directory("a", 1))
    made = FleetDirectory("a", store, tenants, NoKeys(), copy=tmp_path / "copy", metrics=Metrics())
    await made.refresh()
    with pytest.raises(TenantMoving):
        await made.wait_for_switch(Scope.of(NORTH), NORTH)


@pytest.mark.parametrize("asked", [(NORTH, ()), (None, ("ann@north.example", "ben@south.example"))])
@pytest.mark.parametrize("known", [directory("a", 1), directory("b", 0)])
async def test_a_caller_without_rights_for_a_tenant_does_not_wait_for_its_move(
    asked: tuple[UUID | None, Sequence[str]], known: DirectorySnapshot, tmp_path: Path
) -> None:
    south = Tenant(UUID(int=2), "south", domains=("south.example",))
    tenants, store = LocalTenants(tenant(ARRIVING, 1), south), HangingDirectory(known)
    made = FleetDirectory("a", store, tenants, NoKeys(), copy=tmp_path / "copy", metrics=Metrics())
    await made.refresh()
    await asyncio.sleep(2 * fleet_module.SWITCH_POLL)
    await made.wait_for_switch(Scope.of(south.uid), *asked)
    assert (store.reads, tenants.refreshed) == (1, 0)


async def test_the_reason_of_an_outage_is_logged_once(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        made, store = await fleet(tmp_path, None, None)
        for _ in range(3):
            await made._periodic_task.attempt()
        store.snapshot = directory("b", 0)
        await made._periodic_task.attempt()
        store.snapshot = None
        for _ in range(2):
            await made._periodic_task.attempt()
    seen = [(line["event"], line["log_level"]) for line in logs if line["event"].startswith("cell_directory_")]
    failed, available = ("cell_directory_not_read", "warning"), ("cell_directory_available", "info")
    assert seen == [failed, ("cell_directory_missing", "warning"), available, failed]
    assert "onnect" in next(line["reason"] for line in logs if line["event"] == "cell_directory_not_read")
