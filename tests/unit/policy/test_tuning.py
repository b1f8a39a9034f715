"""Tuning the weight of a rule for a tenant: bounds, proposals for a message, and the messages to look at."""

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mailwarden.model.evidence import Evidence
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import Profile, Tenant
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import Policy, bounds_of, for_tenant, load_policy, own_bounds_of
from mailwarden.policy.weight_impact import Tuner, applies, enforced_profile, terms_of_rule, weight_of
from tests.tables import every
from tests.unit.policy.conftest import finished
from tests.unit.policy.test_counterfactual import concluded

POLICY = load_policy()
KNOWN = {rule.id: rule for rule in POLICY.rules}
FORM = KNOWN["html.credential-form"]
TENANT = Tenant(uuid4(), "acme")
NAMES = sorted({name for rule in POLICY.rules for name in rule.needs})


def test_a_tenant_administrator_lowers_no_rule_that_defines_a_verdict():
    def check(rule):
        least, most = own_bounds_of(rule)
        assert bounds_of(rule)[0] <= least <= rule.weight <= most <= bounds_of(rule)[1]
        alone = rule.weight >= 100 or rule.verdict in (Verdict.MALWARE, Verdict.BLOCKED)
        if alone or rule.forces_quarantine or rule.at_least_suspicious:
            assert least == most

    every(POLICY.rules, check, lambda rule: rule.id)


@given(
    st.lists(st.sampled_from(NAMES), max_size=8),
    st.dictionaries(st.sampled_from(sorted(KNOWN)), st.floats(0, 1), max_size=50),
)
def test_weights_of_a_tenant_administrator_clear_neither_malware_nor_blocked(names, chosen):
    weights = {}
    for rule_id, share in chosen.items():
        least, most = own_bounds_of(KNOWN[rule_id])
        weights[rule_id] = round(least + share * (most - least))
    evidence = Evidence((finished(*names),))
    before, after = judge(evidence, POLICY), judge(evidence, for_tenant(POLICY, weights))
    if before.verdict is Verdict.MALWARE:
        assert after.verdict is Verdict.MALWARE
    assert after.points.get(Verdict.MALWARE, 0) == before.points.get(Verdict.MALWARE, 0)
    assert after.points.get(Verdict.BLOCKED, 0) == before.points.get(Verdict.BLOCKED, 0)


def test_the_proposal_is_the_nearest_weight_that_delivers(policy: Policy) -> None:
    request = concluded(policy, *FORM.needs)
    assert request.ruling.decision is Decision.QUARANTINE
    tuner = Tuner(request, policy, TENANT)
    first = tuner.rules(bounds_of)[0]
    assert (first.rule.id, first.weight, first.points) == (FORM.id, FORM.weight, FORM.weight)
    assert first.proposal is not None
    assert first.proposal.decision is Decision.DELIVER
    lower, higher = tuner.result(FORM.id, first.proposal.weight), tuner.result(FORM.id, first.proposal.weight + 1)
    assert lower is not None
    assert higher is not None
    assert (lower.decision, higher.decision) == (Decision.DELIVER, Decision.QUARANTINE)


def test_a_rule_that_changes_nothing_alone_has_no_proposal(policy: Policy) -> None:
    request = concluded(policy, *FORM.needs, "html.iframe-page", "html.link-mismatch")
    found = {each.rule.id: each for each in Tuner(request, policy, TENANT).rules(bounds_of)}
    assert found[FORM.id].proposal is None
    assert found["html.iframe-page"].proposal is None


def test_malware_has_no_proposal_for_anybody(policy: Policy) -> None:
    request = concluded(policy, "clamav.malware", "html.link-mismatch")
    for settable in (bounds_of, own_bounds_of):
        rules = Tuner(request, policy, TENANT).rules(settable)
        assert rules
        assert all(each.proposal is None or each.proposal.verdict is Verdict.MALWARE for each in rules)


def test_blocked_files_are_proposed_to_deployment_administrators_only(policy: Policy) -> None:
    tuner = Tuner(concluded(policy, "office.macro"), policy, TENANT)
    assert tuner.rules(bounds_of)[0].proposal is not None
    assert tuner.rules(own_bounds_of)[0].proposal is None


def test_the_weights_of_the_tenant_are_the_present_ones(policy: Policy) -> None:
    request = concluded(policy, *FORM.needs)
    tuned = replace(TENANT, weights={FORM.id: 0})
    (found,) = [each for each in Tuner(request, policy, tuned).rules(bounds_of) if each.rule.id == FORM.id]
    assert (found.weight, found.proposal) == (0, None)
    assert weight_of(FORM, {FORM.id: 900}) == bounds_of(FORM)[1]


def test_a_monitored_tenant_is_compared_by_balanced(policy: Policy) -> None:
    monitored = replace(TENANT, profile=Profile.MONITOR)
    assert enforced_profile(monitored) is Profile.BALANCED
    assert enforced_profile(replace(TENANT, profile=Profile.STRICT)) is Profile.STRICT
    present = Tuner(concluded(policy, *FORM.needs, profile=Profile.MONITOR), policy, monitored).result()
    assert present is not None
    assert present.decision is Decision.QUARANTINE


def test_messages_are_found_by_tag_or_verdict(policy: Policy) -> None:
    assert terms_of_rule(FORM, lowered=True) == (f"tag:{FORM.tag}",)
    untagged = replace(FORM, tag="")
    assert "verdict:phishing" in terms_of_rule(untagged, lowered=True)
    assert "verdict:clean" not in terms_of_rule(untagged, lowered=True)
    assert terms_of_rule(untagged, lowered=False) == ()
    easing = next(rule for rule in policy.rules if rule.restrains)
    assert terms_of_rule(easing, lowered=True) == ()
    assert applies(FORM, concluded(policy, *FORM.needs))
    assert not applies(FORM, concluded(policy, "html.link-mismatch"))
