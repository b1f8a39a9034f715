"""The changes of a tenant's rule weights, as the audit log has them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, convert

from mailwarden.access.audit import AuditEvent, AuditFilter, AuditStore
from mailwarden.errors import NotFound
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Tenant

MAX_CHANGES = 20  # shown, newest first
_ACTION = "tenants.weights"


class RuleWeights(Struct, frozen=True):
    """The weight of a rule before and after a change; None is the shipped weight."""

    rule_id: str
    before: int | None
    after: int | None


class WeightChange(Struct, frozen=True):
    number: int  # of the audit event
    moment: datetime
    actor: str
    rules: tuple[RuleWeights, ...]
    is_current: bool  # none of the weights has changed since, so the change can be undone

    def concerns(self, rule_id: str) -> bool:
        return any(rule.rule_id == rule_id for rule in self.rules)


class _Weights(Struct, frozen=True):
    weights: dict[str, int] = {}


class _Details(Struct, frozen=True):
    before: _Weights = _Weights()
    after: _Weights = _Weights()


async def recent_changes(audit: AuditStore, tenant: Tenant) -> Sequence[WeightChange]:
    """Return the latest changes of the tenant's weights, newest first."""
    events = await audit.find(Scope.of(tenant.uid), AuditFilter(action=_ACTION), MAX_CHANGES)
    return [change_of(event, tenant.weights) for event in events]


async def find_change(audit: AuditStore, tenant: Tenant, number: str) -> WeightChange:
    """Return the change with this number, or raise NotFound if the tenant has no such change."""
    if number.isascii() and number.isdigit() and len(number) < 19:
        filters = AuditFilter(action=_ACTION, before=int(number) + 1)
        for event in await audit.find(Scope.of(tenant.uid), filters, 1):
            if event.number == int(number):
                return change_of(event, tenant.weights)
    raise NotFound("There is no such change of weights.")


def change_of(event: AuditEvent, weights: Mapping[str, int]) -> WeightChange:
    details = convert(event.details, _Details)
    rules = tuple(_differences(details.before.weights, details.after.weights))
    is_current = all(weights.get(rule.rule_id) == rule.after for rule in rules)
    return WeightChange(event.number, event.moment, event.actor.name, rules, is_current)


def _differences(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[RuleWeights]:
    for rule_id in sorted(before.keys() | after.keys()):
        if before.get(rule_id) != after.get(rule_id):
            yield RuleWeights(rule_id, before.get(rule_id), after.get(rule_id))
