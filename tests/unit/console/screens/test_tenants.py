"""The weights of a tenant's own as its page shows them."""

from msgspec.structs import replace

from mailwarden.console.screens.tenants import OwnWeight, find_rule, own_weights, search_rules
from mailwarden.policy.rules import load_policy

POLICY = load_policy()
RULE = next(rule for rule in POLICY.rules if rule.id == "html.link-mismatch")


def test_a_rule_that_is_gone_is_shown_and_does_nothing() -> None:
    (gone,) = own_weights(POLICY, {"gone.rule": 30})
    assert (gone.rule_id, gone.rule, gone.acting) == ("gone.rule", None, 0)


def test_weights_act_within_the_current_bounds() -> None:
    small = replace(RULE, weight=10)
    assert OwnWeight(small.id, 90, small).acting == 20
    assert OwnWeight(small.id, 15, small).acting == 15


def test_a_search_matches_all_words_and_an_empty_one_nothing() -> None:
    assert RULE in search_rules(POLICY, "LINK mismatch")
    assert search_rules(POLICY, "link no-such-word") == []
    assert search_rules(POLICY, "  ") == []
    assert find_rule(POLICY, "link") is None
