"""Weights that a form states, by the bounds of the user, and the changes that the audit log has."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

import pytest

from mailwarden.access.audit import AuditEvent
from mailwarden.console.request import UserRequest
from mailwarden.console.screens.weights import fixed_sentence, read_weight, settable_bounds
from mailwarden.console.weight_changes import RuleWeights, change_of
from mailwarden.errors import SchemaViolation
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Actor, Scope
from mailwarden.policy.rules import bounds_of, load_policy

POLICY = load_policy()
RULE = next(rule for rule in POLICY.rules if rule.id == "html.link-mismatch")
MACRO = next(rule for rule in POLICY.rules if rule.id == "office.macro")
# Of a request only the scope counts here.
ROOT = cast("UserRequest", SimpleNamespace(scope=Scope.deployment()))
ADMINISTRATOR = cast("UserRequest", SimpleNamespace(scope=Scope.of(uuid4())))


@pytest.mark.parametrize("request_", [ROOT, ADMINISTRATOR])
def test_a_weight_is_a_whole_number_within_its_bounds(request_: UserRequest) -> None:
    least, most = bounds_of(RULE)
    for good in (str(least), str(most), "0", "-0"):
        assert read_weight(request_, RULE, good) == int(good)
    for bad in ("", "-", "--1", "1.5", "1e1", "٣", "99999", " 1", "+1"):
        with pytest.raises(SchemaViolation, match="A weight is a whole number of points"):
            read_weight(request_, RULE, bad)
    for beyond in (str(most + 1), "-1", "9999"):
        with pytest.raises(SchemaViolation, match=f"must be {least} to {most} points, not {beyond}"):
            read_weight(request_, RULE, beyond)


def test_only_the_deployment_changes_a_rule_that_defines_a_verdict() -> None:
    assert read_weight(ROOT, MACRO, "0") == 0
    with pytest.raises(SchemaViolation, match="must be 100 to 100 points, not 0"):
        read_weight(ADMINISTRATOR, MACRO, "0")
    assert fixed_sentence(ROOT, MACRO) == ""
    assert "defines a verdict alone" in fixed_sentence(ADMINISTRATOR, MACRO)
    assert fixed_sentence(ADMINISTRATOR, RULE) == ""


def test_nobody_lowers_a_rule_for_malware() -> None:
    for rule in POLICY.rules:
        if rule.verdict is Verdict.MALWARE:
            for request in (ROOT, ADMINISTRATOR):
                assert settable_bounds(request, rule)[0] == rule.weight
                with pytest.raises(SchemaViolation):
                    read_weight(request, rule, str(rule.weight - 1))


def test_a_change_names_its_rules_and_whether_it_is_current() -> None:
    details = {"before": {"weights": {"a.a": 1, "b.b": 2}}, "after": {"weights": {"b.b": 3, "c.c": 4}}, "undoes": 7}
    event = AuditEvent(9, datetime.now(UTC), Actor("user:ada"), uuid4(), "tenants.weights", "acme", details)
    change = change_of(event, {"b.b": 3, "c.c": 4})
    assert change.rules == (RuleWeights("a.a", 1, None), RuleWeights("b.b", 2, 3), RuleWeights("c.c", None, 4))
    assert change.is_current
    assert change.concerns("a.a")
    assert not change_of(event, {"b.b": 3, "c.c": 5}).is_current
    assert not change_of(event, {"a.a": 1, "b.b": 3, "c.c": 4}).is_current
