"""Tunes the weights of rules for a tenant, from its page or from a message that was judged wrongly.

A preview stores nothing: the form that saves the weight sends it again, and it is checked again.
"""

from collections.abc import Sequence
from uuid import UUID

from aiohttp import web

from mailwarden.access.audit import AuditStore
from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.tenants import TenantDirectory
from mailwarden.console.auth import Page
from mailwarden.console.language import _, word_text
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, read_uid, see_other
from mailwarden.console.screens.message import tenant_in
from mailwarden.console.screens.tenants import find_rule, find_tenant, search_rules
from mailwarden.console.weight_changes import find_change, recent_changes
from mailwarden.errors import NotFound, SchemaViolation, TenantNotFound
from mailwarden.history.store import HistoryStore, find_message
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Profile, Tenant
from mailwarden.policy.rules import Policy, Rule, bounds_of, defines_verdict, own_bounds_of
from mailwarden.policy.weight_impact import Bounds, TunableRule, Tuner, WeightEstimator, weight_of

MAX_FOUND = 30


def settable_bounds(request: UserRequest, rule: Rule) -> Bounds:
    """Return the bounds of this user: a tenant's own administrator may set less than one of the deployment."""
    return bounds_of(rule) if request.scope.tenants is None else own_bounds_of(rule)


def read_weight(request: UserRequest, rule: Rule, given: str) -> int:
    """Return the weight in the form, or raise SchemaViolation with what is wrong."""
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 4):
        raise SchemaViolation("A weight is a whole number of points.")
    least, most = settable_bounds(request, rule)
    if not least <= int(given) <= most:
        raise SchemaViolation(f"The weight of `{rule.id}` must be {least} to {most} points, not {given}.")
    return int(given)


def fixed_sentence(request: UserRequest, rule: Rule) -> str:
    """Return why the user cannot lower the rule, or an empty string."""
    if rule.forces_quarantine:
        return _("The rule forces quarantine. Its weight is fixed.")
    if request.scope.tenants is not None and defines_verdict(rule):
        return _("The rule defines a verdict alone. A tenant's own administrator cannot change its weight.")
    if 0 < rule.weight <= bounds_of(rule)[0]:
        return _("The rule stands for %(verdict)s: its weight cannot be lowered.") % {
            "verdict": word_text(rule.verdict)
        }
    return ""


class WeightsScreen:
    def __init__(
        self,
        tenants: TenantStore,
        directory: TenantDirectory,
        policy: Policy,
        history: HistoryStore,
        audit: AuditStore,
    ) -> None:
        self._tenants = tenants
        self._directory = directory
        self._policy = policy
        self._history = history
        self._audit = audit
        self._estimator = WeightEstimator(history, policy)

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/tenants/{tenant}/weights", Permission.WEIGHTS_WRITE, self.show),
            Page("POST", "/tenants/{tenant}/weights", Permission.WEIGHTS_WRITE, self.override),
            Page("POST", "/tenants/{tenant}/weights/remove", Permission.WEIGHTS_WRITE, self.remove),
            Page("POST", "/tenants/{tenant}/weights/undo", Permission.WEIGHTS_WRITE, self.undo),
            Page("GET", "/messages/{ggrid}/tune", Permission.WEIGHTS_WRITE, self.show_message),
            Page("POST", "/messages/{ggrid}/tune", Permission.WEIGHTS_WRITE, self.tune),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        """Show the rule in the URL with the impact of the weight in the URL, or the rules that match its words."""
        tenant = await find_tenant(self._tenants, request)
        return await self._page(request, tenant, request.query.get("rule", "").strip(), request.query.get("weight", ""))

    async def override(self, request: UserRequest) -> web.StreamResponse:
        """Save the weight of one rule for the tenant."""
        tenant = await find_tenant(self._tenants, request)
        name, given = request.form.text("rule"), request.form.text("weight")
        try:
            await self._save(request, tenant, name, given)
        except SchemaViolation as error:
            return await self._page(request, tenant, name, given, error.message, status=400)
        return see_other(f"/console/tenants/{tenant.uid}", "weights-changed")

    async def remove(self, request: UserRequest) -> web.StreamResponse:
        """Give a rule its shipped weight again."""
        tenant = await find_tenant(self._tenants, request)
        name = request.form.text("rule")
        if name not in tenant.weights:
            raise NotFound("This tenant does not override the weight of that rule.")
        await self._tenants.change_weights(request.scope, tenant.uid, {name: None}, request.actor)
        await self._directory.refresh()
        return see_other(f"/console/tenants/{tenant.uid}", "weights-changed")

    async def undo(self, request: UserRequest) -> web.StreamResponse:
        """Restore the weights before a change, if none of them changed since and this user may set them."""
        tenant = await find_tenant(self._tenants, request)
        change = await find_change(self._audit, tenant, request.form.text("change"))
        for each in change.rules:
            rule = find_rule(self._policy, each.rule_id)
            if rule is not None and each.before is not None:
                read_weight(request, rule, str(each.before))
        done = await self._tenants.change_weights(
            request.scope,
            tenant.uid,
            {each.rule_id: each.before for each in change.rules},
            request.actor,
            expected={each.rule_id: each.after for each in change.rules},
            why={"undoes": change.number},
        )
        await self._directory.refresh()
        notice = "weights-undone" if done else "weights-not-undone"
        if ggrid := request.form.text("message"):
            rule_id = request.form.text("rule")
            return see_other(tune_path(read_uid(ggrid)), notice, tenant=str(tenant.uid), rule=rule_id)
        return see_other(f"/console/tenants/{tenant.uid}", notice)

    async def show_message(self, request: UserRequest) -> web.StreamResponse:
        """Show the rules against a message, the chosen one with the impact of a weight."""
        finished = await self._found(request, request.query.get("tenant", ""))
        return await self._message_page(request, finished, request.query.get("rule"), request.query.get("weight"))

    async def tune(self, request: UserRequest) -> web.StreamResponse:
        """Save the weight of one rule for the tenant of the message."""
        finished = await self._found(request, request.form.text("tenant"))
        tenant = await self._tenant_of(finished)
        name, given = request.form.text("rule"), request.form.text("weight")
        try:
            await self._save(request, tenant, name, given, message=str(finished.ggrid))
        except SchemaViolation as error:
            return await self._message_page(request, finished, name, given, error.message)
        return see_other(tune_path(finished.ggrid), "weights-changed", tenant=str(tenant.uid), rule=name)

    async def _save(self, request: UserRequest, tenant: Tenant, name: str, given: str, message: str = "") -> None:
        rule = find_rule(self._policy, name)
        if rule is None:
            raise SchemaViolation(f"There is no rule `{name}`. Choose one of the rules on this page.")
        weight = read_weight(request, rule, given)
        await self._tenants.change_weights(
            request.scope,
            tenant.uid,
            {rule.id: None if weight == rule.weight else weight},
            request.actor,
            why={"message": message} if message else None,
        )
        await self._directory.refresh()

    async def _found(self, request: UserRequest, tenant: str) -> FinishedRequest:
        scope = request.scope.narrowed(tenant_in(tenant))
        return await find_message(self._history, scope, request.variables["ggrid"])

    async def _tenant_of(self, finished: FinishedRequest) -> Tenant:
        found = await self._tenants.list(Scope.of(finished.tenant))
        if not found:
            raise TenantNotFound("The tenant of this message does not exist any more.")
        return found[0]

    async def _page(
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
        return request.render(
            "tenants/weights.html",
            await self._rule_values(request, tenant, rule, given, mistake),
            wanted=wanted,
            found=found[:MAX_FOUND],
            left_out=max(0, len(found) - MAX_FOUND),
            rules=self._policy.rules,
            finished=None,
            status=status,
        )

    async def _message_page(
        self, request: UserRequest, finished: FinishedRequest, wanted: str | None, given: str | None, mistake: str = ""
    ) -> web.StreamResponse:
        """Show the chosen rule, or the one that changes the result of the message most usefully."""
        tenant = await self._tenant_of(finished)
        tuner = Tuner(finished, self._policy, tenant)
        rules = tuner.rules(lambda rule: settable_bounds(request, rule))
        chosen = chosen_rule(rules, wanted)
        if given is None:
            saved = wanted is not None and chosen is not None and chosen.rule.id in tenant.weights
            given = str(chosen.proposal.weight) if chosen and chosen.proposal and not saved else ""
        values = await self._rule_values(request, tenant, chosen.rule if chosen else None, given, mistake)
        weight = values["previewed"]
        return request.render(
            "message/tune.html",
            values,
            finished=finished,
            choices=rules,
            chosen=chosen,
            present=tuner.result(),
            result=tuner.result(chosen.rule.id, weight) if chosen and isinstance(weight, int) else None,
            status=400 if mistake else 200,
        )

    async def _rule_values(
        self, request: UserRequest, tenant: Tenant, rule: Rule | None, given: str, mistake: str
    ) -> dict[str, object]:
        """Return the values of `tenants/rule.html`; an invalid weight has no preview."""
        values: dict[str, object] = {"tenant": tenant, "rule": rule, "previewed": None, "impact": None}
        if rule is None:
            return {**values, "mistake": mistake}
        weight_now = weight_of(rule, tenant.weights)
        if given and not mistake:
            try:
                weight = read_weight(request, rule, given)
                if weight != weight_now:
                    values["previewed"] = weight
                    values["impact"] = await self._estimator.estimate(tenant, rule, weight)
            except SchemaViolation as error:
                mistake = error.message
        return {
            **values,
            "mistake": mistake,
            "weight": given or str(weight_now),
            "weight_now": weight_now,
            "bounds": settable_bounds(request, rule),
            "fixed": fixed_sentence(request, rule),
            "is_monitored": tenant.profile is Profile.MONITOR,
            "changes": [change for change in await recent_changes(self._audit, tenant) if change.concerns(rule.id)],
        }


def chosen_rule(rules: Sequence[TunableRule], wanted: str | None) -> TunableRule | None:
    """Return the rule that the URL names, or the first one; None if the message has no such rule."""
    if wanted is None:
        return rules[0] if rules else None
    return next((rule for rule in rules if rule.rule.id == wanted), None)


def tune_path(ggrid: UUID) -> str:
    return f"/console/messages/{ggrid}/tune"
