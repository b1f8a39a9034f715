"""What another policy makes of stored evidence: counts, the messages that change, and the rules that make it so."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from mailwarden.model.evidence import Evidence
from mailwarden.model.listing import ListHit
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.list_effects import failed_report
from mailwarden.policy.rejudge import PolicyChoice, RuleChange, Side, Stored, compare, stored_of
from mailwarden.policy.rules import read_weights, reweigh
from tests.samples.judged import policy_of
from tests.unit.policy.conftest import evidence, finished
from tests.unit.policy.test_counterfactual import TENANT, concluded

POLICY = policy_of(form=("phishing", 60), link=("phishing", 40), picture=("spam", 30))
NOBODY = Assignment(UUID(int=0), AssignedBy.REQUEST)


def stored(*names: str, name: str = "a") -> Stored:
    return Stored(name, evidence(finished(*names)), NOBODY)


def test_the_same_policy_changes_nothing():
    messages = [stored("html.form", "html.link"), stored("html.picture"), stored()]
    found = compare(messages, PolicyChoice(POLICY), PolicyChoice(POLICY))
    assert (found.looked_at, found.changes, found.undetermined) == (3, (), 0)
    assert found.verdicts == {Verdict.PHISHING: (1, 1), Verdict.CLEAN: (2, 2)}
    assert found.decisions == {Decision.DELIVER: (2, 2), Decision.QUARANTINE: (1, 1)}


def test_a_changed_message_is_reported_with_its_rules():
    other = reweigh(POLICY, {"html.form": 20, "html.picture": 90})
    found = compare(
        [stored("html.form", "html.link", name="first"), stored("html.picture")],
        PolicyChoice(POLICY),
        PolicyChoice(other),
    )
    (change,) = found.changes
    assert change.name == "first"
    assert change.before == Side(Verdict.PHISHING, Decision.QUARANTINE)
    assert change.after == Side(Verdict.SUSPICIOUS, Decision.DELIVER)
    assert change.rules == (RuleChange("html.form", 60, 20),)
    assert found.verdicts == {Verdict.PHISHING: (1, 0), Verdict.SUSPICIOUS: (0, 1), Verdict.CLEAN: (1, 1)}


def test_a_rule_that_is_gone_weighs_nothing_after():
    found = compare(
        [stored("html.form", "html.link")], PolicyChoice(POLICY), PolicyChoice(policy_of(form=("phishing", 60)))
    )
    assert found.changes[0].rules == (RuleChange("html.link", 40, 0),)


def test_another_profile_changes_decisions_and_names_no_rule():
    found = compare([stored("html.form")], PolicyChoice(POLICY), PolicyChoice(POLICY, Profile.STRICT))
    (change,) = found.changes
    assert (change.before.decision, change.after.decision) == (Decision.DELIVER, Decision.QUARANTINE)
    assert change.rules == ()


def test_stored_messages_are_decided_with_their_profile_and_lists(policy):
    allowed = concluded(policy, "clamav.malware", "html.link-mismatch")
    spared = concluded(policy, "rspamd.spam-score", hits=(ListHit("recipient-exempt", "c@d.example", TENANT),))
    strict = concluded(policy, "html.link-mismatch", profile=Profile.STRICT)
    for request in (allowed, spared, strict):
        found = compare([stored_of(request)], PolicyChoice(policy), PolicyChoice(policy))
        assert found.verdicts == {request.judgement.verdict: (1, 1)}
        assert found.decisions == {request.ruling.decision: (1, 1)}


def test_lists_that_could_not_be_asked_then_stay_unasked(policy):
    request = concluded(policy)
    broken = replace(request, evidence=Evidence((request.evidence.reports[0], failed_report("The lists are away.", 1))))
    found = compare([stored_of(broken)], PolicyChoice(policy), PolicyChoice(policy))
    assert found.decisions == {Decision.UNDECIDED: (1, 1)}


@pytest.mark.parametrize("text", ["html.form", "html.form=", "html.form=x", "=3", "html form=3", "html.form=99999"])
def test_a_weight_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="must look like"):
        read_weights([text])


def test_weights_are_read_and_the_last_counts():
    assert read_weights(["html.form=80", "html.link=-5", "html.form=70"]) == {"html.form": 70, "html.link": -5}


def test_weights_that_a_rule_cannot_have_are_refused_all_at_once(policy):
    with pytest.raises(ValueError, match=r"no rule `html\.formm`; did you mean `html\.form`") as found:
        reweigh(POLICY, {"html.formm": 5, "html.link": 101})
    assert "`html.link` cannot weigh 101" in str(found.value)
    with pytest.raises(ValueError, match="nothing eases malware"):
        reweigh(policy, {"clamav.malware": -1})


def test_the_policy_itself_is_left_as_it_was():
    reweigh(POLICY, {"html.form": 1})
    assert {rule.weight for rule in POLICY.rules} == {60, 40, 30}
