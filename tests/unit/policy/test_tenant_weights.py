"""A tenant's own weights: within bounds, never against malware, and told again by what history keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mailwarden.model.evidence import Evidence
from mailwarden.model.outcome import Verdict
from mailwarden.policy.counterfactual import what_would_change
from mailwarden.policy.judge import judge
from mailwarden.policy.rejudge import PolicyChoice, compare, stored_of
from mailwarden.policy.rules import bounds_of, for_tenant, load_policy, tenant_problems
from tests.tables import every
from tests.unit.policy.conftest import finished
from tests.unit.policy.test_counterfactual import concluded

POLICY = load_policy()
IDS = [rule.id for rule in POLICY.rules]
NAMES = sorted({name for rule in POLICY.rules for name in rule.needs})
RULE = next(rule for rule in POLICY.rules if rule.id == "html.link-mismatch")


def test_without_weights_it_is_the_policy_itself():
    assert for_tenant(POLICY, {}) is POLICY


def test_a_tenant_weight_changes_one_rule_only():
    changed = for_tenant(POLICY, {RULE.id: 7})
    found = judge(Evidence((finished(RULE.needs[0]),)), changed)
    assert [reason.weight for reason in found.reasons if reason.rule == RULE.id] == [7]
    assert [rule for rule in changed.rules if rule.id != RULE.id] == [
        rule for rule in POLICY.rules if rule.id != RULE.id
    ]


@pytest.mark.parametrize("weight", [-100, 100])
def test_no_rule_leaves_its_bounds(weight):
    def check(pair):
        rule, changed = pair
        least, most = bounds_of(rule)
        assert least <= rule.weight <= most
        assert least <= changed.weight <= most
        assert not list(changed.mistakes())
        assert replace(changed, weight=rule.weight) == rule
        if rule.forces_quarantine:
            assert changed == rule
        if rule.verdict is Verdict.MALWARE:
            assert changed.weight >= rule.weight

    tuned = for_tenant(POLICY, dict.fromkeys(IDS, weight)).rules
    every(zip(POLICY.rules, tuned, strict=True), check, lambda pair: pair[0].id)


@pytest.mark.contract("2 malware floor")
@given(st.lists(st.sampled_from(NAMES), max_size=10), st.dictionaries(st.sampled_from(IDS), st.integers(-200, 200)))
def test_tenant_weights_clear_neither_malware_nor_exceeded_limits(names, weights):
    evidence = Evidence((finished(*names),))
    before, after = judge(evidence, POLICY), judge(evidence, for_tenant(POLICY, weights))
    if before.verdict is Verdict.MALWARE:
        assert after.verdict is Verdict.MALWARE
    assert after.forces_quarantine is before.forces_quarantine


@pytest.mark.parametrize("wish", [-100, -61, 61, 100])
def test_learned_findings_do_not_decide_alone_with_any_tenant_weight(wish):
    learned = [rule for rule in POLICY.rules if rule.joins_leading]
    changed = for_tenant(POLICY, {rule.id: wish for rule in learned})
    for name in sorted({need for rule in learned for need in rule.needs}):
        found = judge(Evidence((finished(name),)), changed)
        assert found.verdict is Verdict.CLEAN
        assert -60 <= sum(reason.weight for reason in found.reasons) <= 60
    assert all(list(tenant_problems(POLICY, {rule.id: 2 * rule.weight})) for rule in learned)
    assert not list(tenant_problems(POLICY, {rule.id: 0 for rule in learned}))


def test_invalid_weights_are_reported_and_removed_rules_ignored():
    malware = next(rule for rule in POLICY.rules if rule.verdict is Verdict.MALWARE and rule.weight > 1)
    reported = " ".join(tenant_problems(POLICY, {"html.gone": 1, malware.id: 1, RULE.id: -1}))
    assert "There is no rule `html.gone`" in reported
    assert f"may let `{malware.id}` weigh {malware.weight} to" in reported
    assert f"may let `{RULE.id}` weigh 0 to" in reported
    assert not list(tenant_problems(POLICY, {RULE.id: 0}))
    assert for_tenant(POLICY, {"html.gone": 1}).rules == POLICY.rules


def test_history_is_judged_again_by_the_weights_of_then(policy):
    weights = {RULE.id: min(100, 2 * RULE.weight)}
    request = replace(concluded(for_tenant(policy, weights), RULE.needs[0]), weights=weights)
    assert not what_would_change(request, policy).rules_changed
    found = compare([stored_of(request)], PolicyChoice(policy), PolicyChoice(policy))
    assert found.verdicts == {request.judgement.verdict: (1, 1)}
    assert what_would_change(replace(request, weights={}), policy).rules_changed
