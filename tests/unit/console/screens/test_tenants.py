"""The weights of a tenant's own as its page shows them."""

from msgspec.structs import replace

from mailwarden.console.screens.tenants import OwnWeight, find_rule, own_weights, search_rules, weight_problem
from mailwarden.policy.rules import bounds_of, load_policy

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


def test_a_weight_is_a_whole_number_within_its_bounds() -> None:
    least, most = bounds_of(RULE)
    for good in (str(least), str(most), "0", "-0"):
        assert weight_problem(POLICY, RULE, good) == ""
    for bad in ("", "-", "--1", "1.5", "1e1", "٣", "99999", " 1", "+1"):
        assert weight_problem(POLICY, RULE, bad) == "A weight is a whole number of points."
    for beyond in (str(most + 1), "-1", "9999"):
        assert f"weigh {least} to {most} points, not {beyond}" in weight_problem(POLICY, RULE, beyond)
