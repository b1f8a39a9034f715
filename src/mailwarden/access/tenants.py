"""The directory that assigns recipients to tenants from memory.

It replaces its snapshot as a whole and keeps it while the database is down. A recipient without a tenant's domain
belongs to the default tenant.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct

from mailwarden.access.tenant_domains import domain_of_recipient
from mailwarden.access.tenant_store import TenantStore
from mailwarden.errors import (
    StorageUnavailable,
    TenantNotFound,
)
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup, Tenant
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.periodic_task import PeriodicTask

REFRESH_INTERVAL = 1.0
REFRESH_TIMEOUT = 15.0

_log = get_logger("access.directory")


class Snapshot(Struct, frozen=True):
    """All tenants at one version."""

    version: int
    tenants: Mapping[UUID, Tenant]
    by_domain: Mapping[str, Tenant]
    default: Tenant

    @classmethod
    def of(cls, version: int, tenants: Iterable[Tenant]) -> "Snapshot":
        """Index the tenants; raise StorageUnavailable without a default tenant."""
        by_uid = {tenant.uid: tenant for tenant in tenants}
        default = next((tenant for tenant in by_uid.values() if tenant.is_default), None)
        if default is None:
            raise StorageUnavailable("The database has no default tenant: run `mailwarden database migrate`.")
        by_domain = {domain: tenant for tenant in by_uid.values() for domain in tenant.domains}
        return cls(version, by_uid, by_domain, default)


def assign(snapshot: Snapshot, recipient: str) -> Assignment:
    """Return the tenant of the recipient's domain, or the default tenant."""
    domain = domain_of_recipient(recipient)
    owner = snapshot.by_domain.get(domain) if domain else None
    if owner is not None:
        return Assignment(owner.uid, AssignedBy.DOMAINS, owner.profile, owner.weights)
    return Assignment(snapshot.default.uid, AssignedBy.DEFAULT, snapshot.default.profile, snapshot.default.weights)


def group(snapshot: Snapshot, tenant_uid: UUID | None, recipients: Sequence[str]) -> tuple[RecipientGroup, ...]:
    """Return the recipients grouped by tenant in order; a named tenant gets all of them.

    A message without recipients is one group of the default tenant.
    """
    if tenant_uid is not None:
        named = snapshot.tenants.get(tenant_uid)
        if named is None:
            raise TenantNotFound(f"There is no tenant {tenant_uid}.")
        by_request = Assignment(named.uid, AssignedBy.REQUEST, named.profile, named.weights)
        return (RecipientGroup(by_request, tuple(recipients)),)
    if not recipients:
        return (RecipientGroup(assign(snapshot, "")),)
    return grouped((assign(snapshot, recipient), recipient) for recipient in recipients)


def grouped(assigned: Iterable[tuple[Assignment, str]]) -> tuple[RecipientGroup, ...]:
    """Return one group per tenant; one recipient without a tenant makes the group assigned by default."""
    found: dict[UUID, tuple[Assignment, list[str]]] = {}
    for assignment, recipient in assigned:
        known, recipients = found.setdefault(assignment.tenant, (assignment, []))
        recipients.append(recipient)
        if assignment.by is AssignedBy.DEFAULT and known.by is not AssignedBy.DEFAULT:
            found[assignment.tenant] = (assignment, recipients)
    return tuple(RecipientGroup(assignment, tuple(recipients)) for assignment, recipients in found.values())


class TenantDirectory:
    """This process's newest snapshot, refreshed in the background."""

    def __init__(self, store: TenantStore, interval: float = REFRESH_INTERVAL) -> None:
        self._store = store
        self._periodic_task = PeriodicTask("tenant directory", self.refresh, interval, quiet=True)
        self._snapshot: Snapshot | None = None

    @property
    def loaded(self) -> bool:
        return self._snapshot is not None

    def assign(self, recipient: str) -> Assignment:
        """Return the tenant of one recipient; raise StorageUnavailable before the first read."""
        return assign(self._newest(), recipient)

    def group(self, tenant_uid: UUID | None, recipients: Sequence[str]) -> tuple[RecipientGroup, ...]:
        """Return the recipients of a guard request by tenant; raise like `assign`."""
        return group(self._newest(), tenant_uid, recipients)

    def _newest(self) -> Snapshot:
        if self._snapshot is None:
            raise StorageUnavailable("The tenants have not been read yet.", retry_after=2)
        return self._snapshot

    def known(self, scope: Scope) -> Sequence[Tenant]:
        """Return the tenants of the scope in the snapshot, by name."""
        seen = [tenant for tenant in self._newest().tenants.values() if scope.allows(tenant.uid)]
        return sorted(seen, key=lambda tenant: tenant.name.lower())

    async def find(self, tenant_uid: UUID) -> Tenant | None:
        """Return a tenant from the snapshot, or from the database if it is not there yet."""
        if self._snapshot is None or tenant_uid not in self._snapshot.tenants:
            await self.refresh()
        return None if self._snapshot is None else self._snapshot.tenants.get(tenant_uid)

    async def refresh(self) -> bool:
        """Read the tenants again if they changed; return whether they did."""
        async with asyncio.timeout(REFRESH_TIMEOUT):
            scope = Scope.deployment()
            if self._snapshot is not None and await self._store.version(scope) == self._snapshot.version:
                return False
            version, tenants = await self._store.snapshot(scope)
            self._snapshot = Snapshot.of(version, tenants)
            return True

    async def start(self) -> None:
        """Read the tenants once if the database answers, and keep refreshing in the background."""
        await self._periodic_task.attempt()
        self._periodic_task.start()

    async def stop(self) -> None:
        await self._periodic_task.stop()
