"""The weights of a tenant's own as its page shows them."""

from mailwarden.console.screens.tenants import own_weights
from mailwarden.policy.rules import load_policy

POLICY = load_policy()
RULE = next(rule for rule in POLICY.rules if rule.id == "html.link-mismatch")


def test_a_rule_that_is_gone_is_shown_and_does_nothing() -> None:
    (gone,) = own_weights(POLICY, {"gone.rule": 30})
    assert (gone.rule_id, gone.rule, gone.acting) == ("gone.rule", None, 0)
