"""Tenants: their domains, their profile, how long their history is kept, and the weights of their own."""

from collections.abc import Sequence

from aiohttp import web
from msgspec.structs import replace

from mailwarden.access.directory import TenantDirectory
from mailwarden.access.tenants import TenantStore, Wishes
from mailwarden.console.forms import Form
from mailwarden.console.page import Page
from mailwarden.console.rights import Right
from mailwarden.console.visit import Visit, see_other
from mailwarden.console.weight_view import own_weights
from mailwarden.errors import DomainTaken, MailwardenError, NameTaken, SchemaViolation, TenantNotFound
from mailwarden.model.tenant import Profile, Tenant
from mailwarden.policy.rules import Policy
from mailwarden.serving.errors import STATUS_OF

PROFILES = (
    (Profile.BALANCED, "balanced: suspicious messages are delivered with a warning"),
    (Profile.STRICT, "strict: suspicious messages are quarantined"),
    (Profile.MONITOR, "monitor: all but malware is delivered, and told what would have happened to it"),
)


class TenantsScreen:
    def __init__(self, tenants: TenantStore, directory: TenantDirectory, policy: Policy) -> None:
        self._tenants = tenants
        self._directory = directory
        self._policy = policy

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/tenants", Right.TENANTS_READ, self.show),
            Page("GET", "/tenants/new", Right.TENANTS_WRITE, self.ask),
            Page("POST", "/tenants/new", Right.TENANTS_WRITE, self.create),
            Page("GET", "/tenants/{tenant}", Right.TENANTS_READ, self.show_one),
            Page("POST", "/tenants/{tenant}", Right.TENANTS_WRITE, self.change),
        ]

    async def show(self, visit: Visit) -> web.StreamResponse:
        return visit.render("tenants/index.html", tenants=await self._tenants.list(visit.scope))

    async def ask(self, visit: Visit) -> web.StreamResponse:
        return self._form(visit, Wishes(""), None)

    async def create(self, visit: Visit) -> web.StreamResponse:
        wishes = None
        try:
            wishes = _read(visit.form)
            await self._tenants.create(
                visit.scope,
                wishes.name,
                wishes.domains,
                wishes.profile,
                retention_days=wishes.retention_days,
                quarantine_digest=wishes.quarantine_digest,
                actor=visit.actor,
            )
        except (SchemaViolation, NameTaken, DomainTaken) as error:
            return self._form(visit, wishes or _as_typed(visit.form), None, error)
        await self._directory.refresh()
        return see_other("/console/tenants", "tenant-made")

    async def show_one(self, visit: Visit) -> web.StreamResponse:
        tenant = await find_tenant(self._tenants, visit)
        return self._form(visit, Wishes.of(tenant), tenant)

    async def change(self, visit: Visit) -> web.StreamResponse:
        tenant, wishes = await find_tenant(self._tenants, visit), None
        try:
            wishes = _read(visit.form)
            await self._tenants.change(visit.scope, tenant.uid, wishes, visit.actor)
        except (SchemaViolation, NameTaken, DomainTaken) as error:
            return self._form(visit, wishes or _as_typed(visit.form), tenant, error)
        await self._directory.refresh()
        return see_other(f"/console/tenants/{tenant.uid}", "tenant-changed")

    def _form(
        self, visit: Visit, wishes: Wishes, tenant: Tenant | None, error: MailwardenError | None = None
    ) -> web.StreamResponse:
        return visit.render(
            "tenants/one.html",
            wishes=wishes,
            tenant=tenant,
            profiles=PROFILES,
            weights=own_weights(self._policy, tenant.weights) if tenant else (),
            rules=self._policy.rules,
            error=error,
            status=STATUS_OF[type(error)] if error else 200,
        )


async def find_tenant(tenants: TenantStore, visit: Visit) -> Tenant:
    """Return the tenant that the address names, as far as this person may know it."""
    for tenant in await tenants.list(visit.scope):
        if str(tenant.uid) == visit.variables["tenant"]:
            return tenant
    raise TenantNotFound("There is no such tenant.")


def _read(form: Form) -> Wishes:
    """Return what the form asks for; domains stand on lines of their own or between commas."""
    days = form.text("retention_days")
    if days and not (days.isascii() and days.isdigit() and len(days) < 9):
        raise SchemaViolation("The days of history are a number, or nothing for the deployment's.")
    wishes = _as_typed(form)
    return replace(wishes, retention_days=int(days) if days else None)


def _as_typed(form: Form) -> Wishes:
    chosen = form.text("profile")
    profile = Profile(chosen) if chosen in set(Profile) else Profile.BALANCED
    domains = [word for word in form.raw("domains").replace(",", " ").split() if word]
    return Wishes(form.text("name"), domains, profile, quarantine_digest=form.ticked("quarantine_digest"))
