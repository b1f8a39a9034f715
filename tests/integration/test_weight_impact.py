"""The impact of another weight on past messages, from history in a real PostgreSQL."""

import pytest
from msgspec.structs import replace

from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Profile, Tenant
from mailwarden.policy import impact as entry_impact
from mailwarden.policy import weight_impact
from mailwarden.policy.rules import load_policy
from mailwarden.policy.weight_impact import WeightEstimator
from tests.unit.policy.test_counterfactual import concluded

POLICY = load_policy()
FORM = next(rule for rule in POLICY.rules if rule.id == "html.credential-form")


@pytest.fixture
def estimator(database: Database, monkeypatch: pytest.MonkeyPatch) -> WeightEstimator:
    for module, name in (
        (entry_impact, "COUNT_SECONDS"),
        (entry_impact, "READ_SECONDS"),
        (weight_impact, "JUDGE_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 60.0)
    return WeightEstimator(open_history(database), POLICY)


async def keep(database: Database, tenant: Tenant, *names: str, copies: int = 1) -> None:
    made = concluded(POLICY, *names)
    rows = [replace(made, tenant=tenant.uid, ggrid=new_ggrid()) for _ in range(copies)]
    assert (await open_history(database).save(Scope.deployment(), rows)).stored == copies


@pytest.fixture
async def acme(database: Database) -> Tenant:
    """Return a tenant with five held messages, three of them for one rule alone; another tenant has the same."""
    store = TenantStore(database)
    made, other = await store.create(Scope.deployment(), "acme"), await store.create(Scope.deployment(), "other")
    for tenant in (made, other):
        await keep(database, tenant, *FORM.needs, copies=3)
        await keep(database, tenant, *FORM.needs, "clamav.malware", copies=2)
        await keep(database, tenant, "html.link-mismatch")
    return made


async def test_held_messages_that_would_be_delivered_are_counted_for_one_tenant(
    estimator: WeightEstimator, acme: Tenant
) -> None:
    impact = await estimator.estimate(acme, FORM, 0)
    assert (impact.touched, impact.changed, impact.delivered, impact.held) == (5, 3, 3, 0)
    assert {each.request.tenant for each in impact.messages} == {acme.uid}
    assert {each.outcome.decision_after for each in impact.messages} == {Decision.DELIVER}
    assert not impact.is_sampled


async def test_a_weight_is_compared_with_the_present_one(estimator: WeightEstimator, acme: Tenant) -> None:
    tuned = replace(acme, weights={FORM.id: 0})
    assert (await estimator.estimate(tuned, FORM, 0)).changed == 0
    raised = await estimator.estimate(tuned, FORM, FORM.weight)
    assert (raised.changed, raised.delivered, raised.held) == (3, 0, 3)


async def test_a_monitored_tenant_sees_the_decisions_of_balanced(estimator: WeightEstimator, acme: Tenant) -> None:
    impact = await estimator.estimate(replace(acme, profile=Profile.MONITOR), FORM, 0)
    assert impact.delivered == 3


async def test_an_estimate_out_of_time_says_so(
    estimator: WeightEstimator, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_impact, "READ_SECONDS", 0.0)
    impact = await estimator.estimate(acme, FORM, 0)
    assert (impact.in_time, impact.is_sampled, impact.looked_at) == (False, True, 0)


async def test_few_of_many_messages_are_called_a_sample(
    estimator: WeightEstimator, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_impact, "MAX_JUDGED", 2)
    impact = await estimator.estimate(acme, FORM, 0)
    assert (impact.looked_at, impact.total, impact.is_sampled) == (2, 5, True)
