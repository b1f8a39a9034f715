"""The weights of a tenant's own: one rule at a time is found, looked at, and weighed."""

from collections.abc import Mapping, Sequence

from aiohttp import web

from mailwarden.access.directory import TenantDirectory
from mailwarden.access.tenants import MAX_WEIGHTS, TenantStore
from mailwarden.console.page import Page
from mailwarden.console.rights import Right
from mailwarden.console.screens.tenants import find_tenant
from mailwarden.console.visit import Visit, see_other
from mailwarden.console.weight_view import MAX_FOUND, find_rule, search_rules, weighing_problem
from mailwarden.errors import NotFound
from mailwarden.model.tenant import Tenant
from mailwarden.policy.rules import Policy
from mailwarden.policy.weights import bounds_of


class TenantWeightsScreen:
    def __init__(self, tenants: TenantStore, directory: TenantDirectory, policy: Policy) -> None:
        self._tenants = tenants
        self._directory = directory
        self._policy = policy

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/tenants/{tenant}/weights", Right.TENANTS_WRITE, self.show),
            Page("POST", "/tenants/{tenant}/weights", Right.TENANTS_WRITE, self.weigh),
            Page("POST", "/tenants/{tenant}/weights/remove", Right.TENANTS_WRITE, self.remove),
        ]

    async def show(self, visit: Visit) -> web.StreamResponse:
        """Show the rule that the address names, or the rules that its words meet."""
        return self._page(visit, await find_tenant(self._tenants, visit), visit.query.get("rule", "").strip())

    async def weigh(self, visit: Visit) -> web.StreamResponse:
        """Let one rule weigh otherwise, within its bounds."""
        tenant = await find_tenant(self._tenants, visit)
        rule = find_rule(self._policy, visit.form.text("rule"))
        if rule is None:
            return self._page(visit, tenant, visit.form.text("rule"), status=400)
        given = visit.form.text("weight")
        problem = weighing_problem(self._policy, rule, given)
        if not problem and rule.id not in tenant.weights and len(tenant.weights) >= MAX_WEIGHTS:
            problem = f"A tenant has at most {MAX_WEIGHTS} weights of its own: remove one first."
        if problem:
            return self._page(visit, tenant, rule.id, given, problem, status=400)
        return await self._keep(visit, tenant, {**tenant.weights, rule.id: int(given)})

    async def remove(self, visit: Visit) -> web.StreamResponse:
        """Let a rule weigh again what it usually does."""
        tenant = await find_tenant(self._tenants, visit)
        name = visit.form.text("rule")
        if name not in tenant.weights:
            raise NotFound("This tenant has no weight of its own for that rule.")
        return await self._keep(visit, tenant, {rule: kept for rule, kept in tenant.weights.items() if rule != name})

    async def _keep(self, visit: Visit, tenant: Tenant, weights: Mapping[str, int]) -> web.StreamResponse:
        await self._tenants.weigh(visit.scope, tenant.uid, weights, visit.actor)
        await self._directory.refresh()
        return see_other(f"/console/tenants/{tenant.uid}", "weights-changed")

    def _page(
        self, visit: Visit, tenant: Tenant, wanted: str, given: str = "", mistake: str = "", *, status: int = 200
    ) -> web.StreamResponse:
        rule = find_rule(self._policy, wanted)
        found = () if rule else search_rules(self._policy, wanted)
        own = tenant.weights.get(rule.id) if rule else None
        return visit.render(
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
