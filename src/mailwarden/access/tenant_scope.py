"""The scope of a call that may name a tenant.

Security: tenants are separated here. Only a caller with all tenants learns whether a tenant exists.
"""

from uuid import UUID

from msgspec import UNSET, UnsetType

from mailwarden.access.callers import Caller
from mailwarden.access.tenants import TenantDirectory
from mailwarden.errors import TenantForbidden, TenantNotFound
from mailwarden.model.scope import Scope


async def call_scope(tenants: TenantDirectory, tenant: UUID | UnsetType, caller: Caller) -> Scope:
    """Return the scope of the named tenant, or that of the caller; raise if the caller may not see the tenant."""
    if tenant is UNSET:
        return caller.scope
    known = caller.scope.allows(tenant) and await tenants.find(tenant) is not None
    if not known and caller.scope.tenants is None:
        raise TenantNotFound(f"There is no tenant {tenant}.")
    if not known:
        raise TenantForbidden("This credential may not read anything of this tenant.")
    return Scope.of(tenant)
