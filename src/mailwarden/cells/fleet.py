"""The directory of cells as one abby knows it: refreshed in the background, kept on disk, published for own tenants.

The cell's own database has the truth about its own tenants. The directory says where all others are. A tenant that
both claim is in the cell whose place has the higher version.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from mailwarden.access.tenants import domain_of_recipient
from mailwarden.cells.snapshot import DirectorySnapshot, Place, read_copy, write_copy
from mailwarden.cells.store import DirectoryStore, Publication
from mailwarden.errors import CellDirectoryUnavailable, MailwardenError, StorageUnavailable, TenantMoving
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Tenant, TenantState
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import PeriodicTask

INTERVAL = 1.0
READ_SECONDS = 15.0
COMPLETE_EVERY = 60.0  # seconds: a restored directory may have other rows under a version that is known
KEYS_EVERY = 5.0
LOG_EVERY = 60.0
MAX_REASON = 300  # characters in the log
SWITCH_SECONDS = 3.0  # that a call waits for the end of a switch
SWITCH_POLL = 0.1
RETRY_SECONDS = 1.0  # after a read of the directory that failed: until then calls decide by what is known
SWITCH_PAUSE = 10.0  # after a switch that did not end in this time: a move that was killed holds up no other tenant
MAX_WAITING = 64  # calls at once

_log = get_logger("cells.fleet")


class LocalTenants(Protocol):
    """The tenants in the database of this cell, also those that moved."""

    def stored(self) -> Sequence[Tenant]: ...

    def stored_tenant(self, tenant_uid: UUID) -> Tenant | None: ...

    def owner_of(self, domain: str) -> Tenant | None: ...

    async def refresh(self) -> bool: ...

    async def mark_moved(self, tenant_uid: UUID, version: int, cell: str) -> None: ...

    async def give_up_domains(self, tenant_uid: UUID, version: int, domains: Sequence[str]) -> None: ...


class ListedKey(Protocol):
    """An API key of this cell."""

    @property
    def key_id(self) -> str: ...

    @property
    def is_global(self) -> bool: ...


class LocalKeys(Protocol):
    async def valid(self, scope: Scope) -> Sequence[ListedKey]: ...


class Home(Struct, frozen=True):
    """The other cell of a tenant."""

    cell: str
    tenant: UUID


class Split(Struct, frozen=True):
    """The recipients of a message by cell; `local` are those of this cell and of no tenant."""

    local: tuple[str, ...]
    elsewhere: dict[str, tuple[str, ...]]
    tenants: frozenset[UUID]  # of the recipients elsewhere


class FleetDirectory:
    def __init__(
        self,
        name: str,
        store: DirectoryStore,
        tenants: LocalTenants,
        keys: LocalKeys,
        *,
        copy: Path,
        metrics: Metrics,
        interval: float = INTERVAL,
    ) -> None:
        self.name = name
        self._store = store
        self._tenants = tenants
        self._keys = keys
        self._copy = copy
        self._snapshot: DirectorySnapshot | None = None
        self._copied = True  # the copy on disk is that of the snapshot
        self._copy_failed = False
        self._read_at = float("-inf")
        self._failed_at = float("-inf")
        self._failed_round = False
        self._complete_at = float("-inf")
        self._log_from = 0.0
        self._own_keys: frozenset[str] = frozenset()
        self._keys_at = float("-inf")
        self._conflicts = 0
        self._refreshing = asyncio.Lock()
        self._switching = asyncio.Lock()
        self._waiting = 0
        self._wait_again_at = float("-inf")
        self._periodic_task = PeriodicTask("cell directory", self._round, interval, quiet=True)
        metrics.gauge("cell_directory_age_seconds", "Seconds since the directory of cells was read.").set_function(
            lambda: time.monotonic() - self._read_at
        )
        metrics.gauge(
            "cell_conflicts", "Tenants and domains of this cell that the directory has in another cell."
        ).set_function(lambda: self._conflicts)
        metrics.gauge(
            "cell_moves_incomplete", "Tenants that accept no changes, because their move is not complete."
        ).set_function(self._incomplete_moves)

    async def start(self) -> None:
        """Read the directory, or its copy on disk while the database is down; keep refreshing in the background."""
        self._snapshot = await asyncio.to_thread(read_copy, self._copy)
        await self._periodic_task.attempt()
        if self._snapshot is None:
            _log.warning("cell_directory_missing", copy=str(self._copy))
        self._periodic_task.start()

    async def stop(self) -> None:
        await self._periodic_task.stop()

    async def refresh(self) -> None:
        """Read the changes of the directory now; raise while it is down."""
        async with self._refreshing:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await self._read()
            except BaseException:  # also one that its caller has given up
                self._failed_at = time.monotonic()
                raise

    async def _read(self) -> None:
        now = time.monotonic()
        complete = self._snapshot is None or now - self._complete_at > COMPLETE_EVERY
        since = None if complete or self._snapshot is None else self._snapshot.version
        changes = await self._store.changes(since)
        self._read_at = now
        if complete:
            self._complete_at = now
        if changes is not None:
            new = changes.applied_to(self._snapshot or DirectorySnapshot())
            self._copied = self._copied and new == self._snapshot
            self._snapshot = new
        if not self._copied and self._snapshot is not None:
            self._copied = await self._write_copy(self._snapshot)

    async def _write_copy(self, snapshot: DirectorySnapshot) -> bool:
        """Replace the copy on disk; a full or read-only disk stops no call."""
        try:
            await asyncio.to_thread(write_copy, self._copy, snapshot)
        except OSError as error:
            if not self._copy_failed:
                _log.error("cell_directory_copy_not_written", path=str(self._copy), reason=error.strerror)
            self._copy_failed = True
            return False
        self._copy_failed = False
        return True

    async def try_refresh(self) -> None:
        """Read the changes for a call; while the directory is down or hangs, what is known stays."""
        if time.monotonic() - self._failed_at < RETRY_SECONDS:
            return
        try:
            async with asyncio.timeout(SWITCH_SECONDS):
                await self.refresh()
        except (MailwardenError, TimeoutError) as error:
            _log.warning("cell_directory_not_read", reason=_reason(error))

    def _incomplete_moves(self) -> int:
        try:
            stored = self._tenants.stored()
        except StorageUnavailable:  # not read yet
            return 0
        return sum(each.state is TenantState.LEAVING or self._is_switching(each) for each in stored)

    def _is_switching(self, tenant: Tenant) -> bool:
        """Return whether the directory has a tenant here that this cell does not accept yet."""
        if tenant.state is not TenantState.ARRIVING or self._snapshot is None:
            return False
        place = self._snapshot.tenants.get(tenant.uid)
        return place == Place(self.name, tenant.place_version)

    async def wait_for_switch(
        self, scope: Scope, tenant_uid: UUID | None, recipients: Sequence[str] = (), *, forwarded: bool = False
    ) -> None:
        """Wait until the tenants of a call are here, if they are just being switched; raise TenantMoving after that.

        A call that another cell has forwarded proves that the directory was switched, also if this abby has not read
        that yet. A caller who may not act for all these tenants waits for none, and learns nothing of their moves.
        """
        end = time.monotonic() + SWITCH_SECONDS
        while found := self._arriving(scope, tenant_uid, recipients):
            # One call at a time reads, however many wait: the others decide by what is known.
            if not self._refreshing.locked() and time.monotonic() - self._read_at > SWITCH_POLL:
                await self.try_refresh()
            if not forwarded and not any(map(self._is_switching, found)):
                return
            if time.monotonic() > end:
                self._wait_again_at = time.monotonic() + SWITCH_PAUSE
            if self._waiting >= MAX_WAITING or time.monotonic() < self._wait_again_at:
                raise _moving()
            self._waiting += 1
            try:
                await self._poll_tenants(end)
            finally:
                self._waiting -= 1

    def _arriving(self, scope: Scope, tenant_uid: UUID | None, recipients: Sequence[str]) -> Sequence[Tenant]:
        """Return the tenants of a call that arrive in this cell; none if the caller may not act for all of them."""
        if tenant_uid is not None:
            owners = [self._tenants.stored_tenant(tenant_uid)]
        else:
            owners = [self._tenants.owner_of(domain) for domain in map(domain_of_recipient, recipients) if domain]
        known = [each for each in owners if each is not None]
        if not all(scope.allows(each.uid) for each in known):
            return []
        return [each for each in known if each.state is TenantState.ARRIVING]

    async def _poll_tenants(self, end: float) -> None:
        """Wait for a moment, and read the tenants of this cell again, unless another call does that."""
        if self._switching.locked():
            await asyncio.sleep(SWITCH_POLL)
            return
        async with self._switching:
            await asyncio.sleep(SWITCH_POLL)
            try:
                async with asyncio.timeout(max(SWITCH_POLL, end - time.monotonic())):
                    await self._tenants.refresh()
            except TimeoutError:
                raise _moving() from None

    def split(self, tenant_uid: UUID | None, recipients: Sequence[str]) -> Split:
        """Return the recipients by cell; a named tenant gets all of them."""
        if tenant_uid is not None:
            home = self.home_of_tenant(tenant_uid)
            if home is None:
                return Split(tuple(recipients), {}, frozenset())
            return Split((), {home.cell: tuple(recipients)}, frozenset({home.tenant}))
        local: list[str] = []
        remote: dict[str, list[str]] = {}
        tenants: set[UUID] = set()
        for recipient in recipients:
            domain = domain_of_recipient(recipient)
            home = self._home_of_domain(domain) if domain else None
            if home is None:
                local.append(recipient)
            else:
                remote.setdefault(home.cell, []).append(recipient)
                tenants.add(home.tenant)
        return Split(tuple(local), {cell: tuple(those) for cell, those in remote.items()}, frozenset(tenants))

    def has(self, tenant_uid: UUID | None, recipients: Sequence[str]) -> bool:
        """Return whether all recipients, or the named tenant, belong to tenants of this cell."""
        if tenant_uid is not None:
            named = self._tenants.stored_tenant(tenant_uid)
            return named is not None and named.is_here
        owners = [self._tenants.owner_of(domain) if domain else None for domain in map(domain_of_recipient, recipients)]
        return all(owner is not None and owner.is_here for owner in owners)

    def home_of_tenant(self, tenant: UUID) -> Home | None:
        """Return the other cell of a tenant; None if it is here or unknown."""
        local = self._tenants.stored_tenant(tenant)
        if local is None and self._snapshot is None:
            raise _never_read()
        place = None if self._snapshot is None else self._snapshot.tenants.get(tenant)
        elsewhere = place if place is not None and place.cell != self.name else None
        if local is None:
            return None if elsewhere is None else Home(elsewhere.cell, tenant)
        if local.is_here:
            newer = elsewhere is not None and elsewhere.version > local.place_version
            return Home(elsewhere.cell, tenant) if elsewhere is not None and newer else None
        if elsewhere is not None and (local.state is TenantState.ARRIVING or elsewhere.version >= local.place_version):
            return Home(elsewhere.cell, tenant)
        return Home(local.other_cell, tenant)

    def cell_of_key(self, key_id: str) -> str | None:
        """Return the other cell of an API key; None if it is of this cell or unknown."""
        cell = None if self._snapshot is None else self._snapshot.keys.get(key_id)
        return None if cell == self.name else cell

    def lists_key_here(self, key_id: str) -> bool:
        """Return whether the directory has an API key in this cell."""
        return self._snapshot is not None and self._snapshot.keys.get(key_id) == self.name

    def _home_of_domain(self, domain: str) -> Home | None:
        owner = self._tenants.owner_of(domain)
        if owner is not None and owner.is_here:
            return self.home_of_tenant(owner.uid)
        if self._snapshot is None:
            raise _never_read()
        tenant = self._snapshot.domains.get(domain)
        if tenant is None and owner is not None:
            place = self._snapshot.tenants.get(owner.uid)
            # A directory that knows of the move knows its domains, too: the tenant may have given this one up since.
            if place is None or place.version < owner.place_version:
                tenant = owner.uid
        return None if tenant is None else self.home_of_tenant(tenant)

    async def _round(self) -> None:
        try:
            await self.refresh()
        except (MailwardenError, TimeoutError) as error:
            if not self._failed_round:  # once per outage: the directory is read every second
                self._failed_round = True
                _log.warning("cell_directory_not_read", reason=_reason(error))
            raise
        if self._failed_round:
            self._failed_round = False
            _log.info("cell_directory_available")
        await self.publish()

    async def publish(self) -> None:
        """Write this cell's own tenants, domains and keys to the directory, as far as they differ."""
        assert self._snapshot is not None
        known, own = self._snapshot, [each for each in self._tenants.stored() if each.is_here and not each.is_default]
        mine = [each for each in own if each.state is not TenantState.LEAVING]
        tenants = {
            each.uid: each.place_version
            for each in mine
            if (place := known.tenants.get(each.uid)) is None or place.version < each.place_version
        }
        ours = {each.uid for each in mine if each.uid in tenants or known.tenants[each.uid].cell == self.name}
        domains = {domain: each.uid for each in mine if each.uid in ours for domain in each.domains}
        listed = {domain for domain, tenant in known.domains.items() if tenant in ours}
        keys = await self._valid_keys()
        dropped = {key for key, cell in known.keys.items() if cell == self.name and key not in keys}
        if dropped:  # keys of a tenant that has just moved here are newer than what was read
            keys = await self._valid_keys(fresh=True)
        given = Publication(
            tenants,
            {domain: tenant for domain, tenant in domains.items() if known.domains.get(domain) is None}
            | {domain: tenant for domain, tenant in domains.items() if self._moved_here(known, domain, tenant, ours)},
            sorted(listed - domains.keys()),
            sorted(keys - known.keys.keys()),
            sorted(dropped - keys),
        )
        if not given.empty:
            await self._store.publish(self.name, given)
            await self.refresh()
        elsewhere = [each for each in mine if each.uid not in ours]
        for each in elsewhere:
            place = known.tenants[each.uid]
            if place.version > each.place_version:  # this cell was restored from a backup of before a move
                await self._tenants.mark_moved(each.uid, place.version, place.cell)
        await self._give_up_domains()
        self._note_conflicts(elsewhere, domains)

    async def _give_up_domains(self) -> None:
        """Remove domains of moved tenants that the directory does not have any more: others may use them here."""
        known = self._snapshot or DirectorySnapshot()
        for each in self._tenants.stored():
            place = known.tenants.get(each.uid)
            if each.state is not TenantState.MOVED or place is None or place.version < each.place_version:
                continue  # a directory that is older than the move may not have all domains
            dropped = [domain for domain in each.domains if known.domains.get(domain) != each.uid]
            if dropped and place.cell != self.name:
                await self._tenants.give_up_domains(each.uid, each.place_version, dropped)

    async def _valid_keys(self, *, fresh: bool = False) -> frozenset[str]:
        """Return the ids of the keys of tenants; a deployment key is valid in its own cell alone."""
        if fresh or time.monotonic() - self._keys_at > KEYS_EVERY:
            keys = await self._keys.valid(Scope.deployment())
            self._own_keys, self._keys_at = frozenset(key.key_id for key in keys if not key.is_global), time.monotonic()
        return self._own_keys

    @staticmethod
    def _moved_here(known: DirectorySnapshot, domain: str, tenant: UUID, ours: set[UUID]) -> bool:
        """Return whether the domain went from one tenant of this cell to another."""
        owner = known.domains.get(domain)
        return owner is not None and owner != tenant and owner in ours

    def _note_conflicts(self, tenants: Sequence[Tenant], domains: dict[str, UUID]) -> None:
        known = self._snapshot or DirectorySnapshot()
        taken = sorted(domain for domain, tenant in domains.items() if known.domains.get(domain, tenant) != tenant)
        self._conflicts = len(tenants) + len(taken)
        if self._conflicts and time.monotonic() >= self._log_from:
            self._log_from = time.monotonic() + LOG_EVERY
            names = [tenant.name for tenant in tenants[:10]]
            _log.error("cell_conflict", tenants=names, domains=taken[:10], number=self._conflicts)


def _reason(error: Exception) -> str:
    """Return the text of an error with that of its cause, such as PostgreSQL's own."""
    found = [str(each) or type(each).__name__ for each in (error, error.__cause__) if each is not None]
    return ": ".join(found)[:MAX_REASON]


def _never_read() -> CellDirectoryUnavailable:
    return CellDirectoryUnavailable("The directory of cells was never read; try again.", retry_after=2)


def _moving() -> TenantMoving:
    return TenantMoving("The tenant is being moved to this cell; try again.", retry_after=1)
