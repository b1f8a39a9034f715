"""The Tenants screens: domains, profile, retention, and overridden rule weights."""

from collections.abc import Mapping, Sequence

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from mailwarden.access.tenants import MAX_WEIGHTS, TenantDirectory, TenantSettings, TenantStore
from mailwarden.console.auth import Page
from mailwarden.console.first_steps import START
from mailwarden.console.forms import Form
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other
from mailwarden.errors import DomainTaken, MailwardenError, NameTaken, NotFound, SchemaViolation, TenantNotFound
from mailwarden.model.tenant import Profile, Tenant
from mailwarden.policy.rules import Policy, Rule, bounds_of, tenant_problems
from mailwarden.serving.errors import STATUS_OF

PROFILES = (
    (Profile.BALANCED, "balanced: suspicious messages are delivered with a warning"),
    (Profile.STRICT, "strict: suspicious messages are quarantined"),
    (Profile.MONITOR, "monitor: all but malware is delivered; the decision of `balanced` is reported"),
)


class TenantsScreen:
    def __init__(self, tenants: TenantStore, directory: TenantDirectory, policy: Policy) -> None:
        self._tenants = tenants
        self._directory = directory
        self._policy = policy

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
        return self._form(request, TenantSettings(""), None)

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
            return self._form(request, wishes or _as_typed(request.form), None, error)
        await self._directory.refresh()
        if request.form.ticked("start"):
            return see_other(START, "tenant-made", tenant=str(created.uid))
        return see_other("/console/tenants", "tenant-made")

    async def show_one(self, request: UserRequest) -> web.StreamResponse:
        tenant = await find_tenant(self._tenants, request)
        return self._form(request, TenantSettings.of(tenant), tenant)

    async def change(self, request: UserRequest) -> web.StreamResponse:
        tenant, wishes = await find_tenant(self._tenants, request), None
        try:
            wishes = _read(request.form)
            await self._tenants.change(request.scope, tenant.uid, wishes, request.actor)
        except (SchemaViolation, NameTaken, DomainTaken) as error:
            return self._form(request, wishes or _as_typed(request.form), tenant, error)
        await self._directory.refresh()
        return see_other(f"/console/tenants/{tenant.uid}", "tenant-changed")

    def _form(
        self, request: UserRequest, wishes: TenantSettings, tenant: Tenant | None, error: MailwardenError | None = None
    ) -> web.StreamResponse:
        return request.render(
            "tenants/one.html",
            wishes=wishes,
            tenant=tenant,
            start=request.form.ticked("start") or "start" in request.query,
            profiles=PROFILES,
            weights=own_weights(self._policy, tenant.weights) if tenant else (),
            rules=self._policy.rules,
            error=error,
            status=STATUS_OF[type(error)] if error else 200,
        )


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


MAX_FOUND = 30


class OwnWeight(Struct, frozen=True):
    """An overridden weight; it has no effect if `rule` is None, since the policy no longer has that rule."""

    rule_id: str
    weight: int
    rule: Rule | None

    @property
    def acting(self) -> int:
        """The effective weight, within the current bounds of the rule."""
        if self.rule is None:
            return 0
        least, most = bounds_of(self.rule)
        return max(least, min(most, self.weight))


def own_weights(policy: Policy, weights: Mapping[str, int]) -> Sequence[OwnWeight]:
    return [OwnWeight(name, weight, find_rule(policy, name)) for name, weight in weights.items()]


def find_rule(policy: Policy, name: str) -> Rule | None:
    return next((rule for rule in policy.rules if rule.id == name), None)


def search_rules(policy: Policy, text: str) -> Sequence[Rule]:
    """Return the rules whose id, name, tag or description contain all words."""
    words = text.casefold().split()
    return [rule for rule in policy.rules if all(word in _search_text(rule) for word in words)] if words else []


def weight_problem(policy: Policy, rule: Rule, given: str) -> str:
    """Return the error in a weight, or an empty string."""
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 4):
        return "A weight is a whole number of points."
    problems = [*tenant_problems(policy, {rule.id: int(given)})]
    return problems[-1] if problems else ""  # the last problem names the bounds


def _search_text(rule: Rule) -> str:
    return f"{rule.id} {rule.name} {rule.tag} {rule.description}".casefold()


class TenantWeightsScreen:
    def __init__(self, tenants: TenantStore, directory: TenantDirectory, policy: Policy) -> None:
        self._tenants = tenants
        self._directory = directory
        self._policy = policy

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/tenants/{tenant}/weights", Permission.TENANTS_WRITE, self.show),
            Page("POST", "/tenants/{tenant}/weights", Permission.TENANTS_WRITE, self.override),
            Page("POST", "/tenants/{tenant}/weights/remove", Permission.TENANTS_WRITE, self.remove),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        """Show the rule in the URL, or the rules that match its words."""
        return self._page(request, await find_tenant(self._tenants, request), request.query.get("rule", "").strip())

    async def override(self, request: UserRequest) -> web.StreamResponse:
        """Override the weight of one rule, within its bounds."""
        tenant = await find_tenant(self._tenants, request)
        rule = find_rule(self._policy, request.form.text("rule"))
        if rule is None:
            return self._page(request, tenant, request.form.text("rule"), status=400)
        given = request.form.text("weight")
        problem = weight_problem(self._policy, rule, given)
        if not problem and rule.id not in tenant.weights and len(tenant.weights) >= MAX_WEIGHTS:
            problem = f"A tenant has at most {MAX_WEIGHTS} overridden weights. Remove one first."
        if problem:
            return self._page(request, tenant, rule.id, given, problem, status=400)
        return await self._keep(request, tenant, {**tenant.weights, rule.id: int(given)})

    async def remove(self, request: UserRequest) -> web.StreamResponse:
        """Remove an override."""
        tenant = await find_tenant(self._tenants, request)
        name = request.form.text("rule")
        if name not in tenant.weights:
            raise NotFound("This tenant does not override the weight of that rule.")
        return await self._keep(request, tenant, {rule: kept for rule, kept in tenant.weights.items() if rule != name})

    async def _keep(self, request: UserRequest, tenant: Tenant, weights: Mapping[str, int]) -> web.StreamResponse:
        await self._tenants.weigh(request.scope, tenant.uid, weights, request.actor)
        await self._directory.refresh()
        return see_other(f"/console/tenants/{tenant.uid}", "weights-changed")

    def _page(
        self,
        request: UserRequest,
        tenant: Tenant,
        wanted: str,
        given: str = "",
        mistake: str = "",
        *,
        status: int = 200,
    ) -> web.StreamResponse:
        rule = find_rule(self._policy, wanted)
        found = () if rule else search_rules(self._policy, wanted)
        own = tenant.weights.get(rule.id) if rule else None
        return request.render(
            "tenants/weights.html",
            tenant=tenant,
            wanted=wanted,
            rule=rule,
            bounds=bounds_of(rule) if rule else (0, 0),
            own=own,
            weight=given or ("" if own is None else str(own)),
            mistake=mistake,
            found=found[:MAX_FOUND],
            left_out=max(0, len(found) - MAX_FOUND),
            rules=self._policy.rules,
            status=status,
        )
