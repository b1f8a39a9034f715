"""The Tenants screens: domains, profile, retention, and the overridden rule weights."""

from collections.abc import Mapping, Sequence

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from mailwarden.access.audit import AuditStore
from mailwarden.access.tenant_store import TenantSettings, TenantStore
from mailwarden.access.tenants import TenantDirectory
from mailwarden.console.auth import Page
from mailwarden.console.first_steps import START
from mailwarden.console.forms import Form
from mailwarden.console.language import N_
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other
from mailwarden.console.weight_changes import WeightChange, recent_changes
from mailwarden.errors import DomainTaken, MailwardenError, NameTaken, SchemaViolation, TenantNotFound
from mailwarden.model.tenant import Profile, Tenant
from mailwarden.policy.rules import Policy, Rule
from mailwarden.policy.weight_impact import weight_of
from mailwarden.serving.errors import STATUS_OF

PROFILES = (
    (Profile.BALANCED, N_("balanced: suspicious messages are delivered with a warning")),
    (Profile.STRICT, N_("strict: suspicious messages are quarantined")),
    (Profile.MONITOR, N_("monitor: all but malware is delivered; the decision of `balanced` is reported")),
)


class TenantsScreen:
    def __init__(self, tenants: TenantStore, directory: TenantDirectory, policy: Policy, audit: AuditStore) -> None:
        self._tenants = tenants
        self._directory = directory
        self._policy = policy
        self._audit = audit

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/tenants", Permission.TENANTS_READ, self.show),
            Page("GET", "/tenants/new", Permission.TENANTS_WRITE, self.ask),
            Page("POST", "/tenants/new", Permission.TENANTS_WRITE, self.create),
            Page("GET", "/tenants/{tenant}", Permission.TENANTS_READ, self.show_one),
            Page("POST", "/tenants/{tenant}", Permission.TENANTS_WRITE, self.change),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return request.render("tenants/index.html", tenants=await self._tenants.list(request.scope))

    async def ask(self, request: UserRequest) -> web.StreamResponse:
        return await self._form(request, TenantSettings(""), None)

    async def create(self, request: UserRequest) -> web.StreamResponse:
        wishes = None
        try:
            wishes = _read(request.form)
            created = await self._tenants.create(
                request.scope,
                wishes.name,
                wishes.domains,
                wishes.profile,
                retention_days=wishes.retention_days,
                quarantine_digest=wishes.quarantine_digest,
                actor=request.actor,
            )
        except (SchemaViolation, NameTaken, DomainTaken) as error:
            return await self._form(request, wishes or _as_typed(request.form), None, error)
        await self._directory.refresh()
        if request.form.ticked("start"):
            return see_other(START, "tenant-made", tenant=str(created.uid))
        return see_other("/console/tenants", "tenant-made")

    async def show_one(self, request: UserRequest) -> web.StreamResponse:
        tenant = await find_tenant(self._tenants, request)
        return await self._form(request, TenantSettings.of(tenant), tenant)

    async def change(self, request: UserRequest) -> web.StreamResponse:
        tenant, wishes = await find_tenant(self._tenants, request), None
        try:
            wishes = _read(request.form)
            await self._tenants.change(request.scope, tenant.uid, wishes, request.actor)
        except (SchemaViolation, NameTaken, DomainTaken) as error:
            return await self._form(request, wishes or _as_typed(request.form), tenant, error)
        await self._directory.refresh()
        return see_other(f"/console/tenants/{tenant.uid}", "tenant-changed")

    async def _form(
        self, request: UserRequest, wishes: TenantSettings, tenant: Tenant | None, error: MailwardenError | None = None
    ) -> web.StreamResponse:
        return request.render(
            "tenants/one.html",
            wishes=wishes,
            tenant=tenant,
            start=request.form.ticked("start") or "start" in request.query,
            profiles=PROFILES,
            weights=own_weights(self._policy, tenant.weights) if tenant else (),
            changes=await self._changes(request, tenant),
            rules=self._policy.rules,
            error=error,
            status=STATUS_OF[type(error)] if error else 200,
        )

    async def _changes(self, request: UserRequest, tenant: Tenant | None) -> Sequence[WeightChange]:
        if tenant is None or not request.may(Permission.WEIGHTS_WRITE):
            return ()
        return await recent_changes(self._audit, tenant)


async def find_tenant(tenants: TenantStore, request: UserRequest) -> Tenant:
    """Return the tenant in the URL, or raise TenantNotFound."""
    for tenant in await tenants.list(request.scope):
        if str(tenant.uid) == request.variables["tenant"]:
            return tenant
    raise TenantNotFound("There is no such tenant.")


def _read(form: Form) -> TenantSettings:
    """Return the settings in the form; domains are separated by whitespace or commas."""
    days = form.text("retention_days")
    if days and not (days.isascii() and days.isdigit() and len(days) < 9):
        raise SchemaViolation("The retention is a number of days, or empty for the deployment's default.")
    wishes = _as_typed(form)
    return replace(wishes, retention_days=int(days) if days else None)


def _as_typed(form: Form) -> TenantSettings:
    chosen = form.text("profile")
    profile = Profile(chosen) if chosen in set(Profile) else Profile.BALANCED
    domains = [word for word in form.raw("domains").replace(",", " ").split() if word]
    return TenantSettings(form.text("name"), domains, profile, quarantine_digest=form.ticked("quarantine_digest"))


class OwnWeight(Struct, frozen=True):
    """An overridden weight; it has no effect if `rule` is None, since the policy no longer has that rule."""

    rule_id: str
    weight: int
    rule: Rule | None

    @property
    def acting(self) -> int:
        """The effective weight, within the current bounds of the rule."""
        return weight_of(self.rule, {self.rule_id: self.weight}) if self.rule else 0


def own_weights(policy: Policy, weights: Mapping[str, int]) -> Sequence[OwnWeight]:
    return [OwnWeight(name, weight, find_rule(policy, name)) for name, weight in weights.items()]


def find_rule(policy: Policy, name: str) -> Rule | None:
    return next((rule for rule in policy.rules if rule.id == name), None)


def search_rules(policy: Policy, text: str) -> Sequence[Rule]:
    """Return the rules whose id, name, tag or description contain all words."""
    words = text.casefold().split()
    return [rule for rule in policy.rules if all(word in _search_text(rule) for word in words)] if words else []


def _search_text(rule: Rule) -> str:
    return f"{rule.id} {rule.name} {rule.tag} {rule.description}".casefold()
