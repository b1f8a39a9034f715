"""What would have changed an outcome: told by judging and deciding again without some of the evidence."""

from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pytest
from msgspec.structs import replace

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.listing import ListHit, Listing
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.place import Place
from mailwarden.model.record import FinishedRequest, MessageSummary
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.counterfactual import nearest_verdict, what_would_change
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.list_effects import report_of
from mailwarden.policy.rules import Policy, Rule

TENANT = uuid4()


def concluded(
    policy: Policy, *names: str, hits: tuple[ListHit, ...] = (), profile: Profile = Profile.BALANCED
) -> FinishedRequest:
    """Return a finished request with these findings and these entries of lists."""
    listing = Listing(acting=hits)
    seen = Report("tested", True, Status.FINISHED, 1.0, tuple(Finding(name, Place(part="1")) for name in names))
    evidence = Evidence((seen, report_of(listing, 0.1)))
    judgement = judge(evidence, policy)
    ruling = decide(judgement, Assignment(TENANT, AssignedBy.REQUEST, profile), policy, listing=listing)
    now = datetime.now(UTC)
    return FinishedRequest(
        new_ggrid(), TENANT, now, now, "restApi", "guard", Envelope("a@b.example", ("c@d.example",)),
        MessageSummary(1, ""), evidence, judgement, ruling, profile, listing=listing.recorded(),
    )  # fmt: skip


def test_the_one_reason_that_convicts_would_change_it(policy):
    found = what_would_change(concluded(policy, "attachments.executable-type-mismatch", "html.link-mismatch"), policy)
    assert found.verdict is Verdict.MALWARE
    (alone,) = found.alone
    assert [reason.rule for reason in alone.reasons] == ["attachments.executable-type-mismatch"]
    assert alone.verdict in (Verdict.SUSPICIOUS, Verdict.CLEAN, Verdict.PHISHING)
    assert found.together is None


def test_the_smallest_set_of_deciding_reasons_is_shown(policy):
    request = concluded(policy, "attachments.executable-type-mismatch", "clamav.malware")
    found = what_would_change(request, policy)
    assert found.alone == ()
    assert found.together is not None
    assert {reason.rule for reason in found.together.reasons} == {
        "attachments.executable-type-mismatch",
        "clamav.malware",
    }
    assert found.together.verdict is not Verdict.MALWARE


def test_a_clean_message_shows_the_distance_to_the_threshold(policy):
    request = concluded(policy, "rspamd.suspected-spam")
    found = what_would_change(request, policy)
    assert request.judgement.verdict is Verdict.CLEAN
    assert found.nearest is not None
    assert found.nearest.verdict is Verdict.SPAM
    assert found.nearest.missing == 100 - request.judgement.points["spam"]


def test_a_message_without_points_has_no_line_near(policy):
    assert what_would_change(concluded(policy), policy).nearest is None


def test_a_convicted_message_shows_only_worse_verdicts(policy):
    request = concluded(policy, "clamav.malware", "rspamd.probable-spam")
    assert nearest_verdict(request.judgement) is None


def test_a_blocking_entry_is_shown_with_the_outcome_without_it(policy):
    hit = ListHit("sender-block", "a@b.example", TENANT, value="a@b.example")
    found = what_would_change(concluded(policy, hits=(hit,)), policy)
    assert found.entry is not None
    assert found.entry.entry == "a@b.example"
    assert found.without_entry is Decision.DELIVER
    assert [alone.verdict for alone in found.alone] == [Verdict.CLEAN]


def test_an_allowing_entry_is_shown_with_the_outcome_without_it(policy):
    hit = ListHit("sender-allow", "b.example", None, value="a@b.example")
    request = concluded(policy, "rspamd.gtube", hits=(hit,))
    found = what_would_change(request, policy)
    assert request.ruling.decision is Decision.DELIVER
    assert found.without_entry is Decision.QUARANTINE


def test_the_profile_of_then_decides(policy):
    request = concluded(policy, "html.link-mismatch", profile=Profile.STRICT)
    found = what_would_change(request, policy)
    assert found.decision is request.ruling.decision


def test_changed_rules_are_reported(policy):
    request = concluded(policy, "clamav.malware")
    judged = replace(request.judgement, verdict=Verdict.SPAM, points={"spam": 100})
    found = what_would_change(replace(request, judgement=judged), policy)
    assert found.rules_changed
    assert found.verdict is Verdict.MALWARE
    assert found.alone == ()


def test_a_decision_on_unrecorded_inputs_is_not_guessed(policy):
    request = concluded(policy, "clamav.malware")
    request = replace(request, ruling=replace(request.ruling, decision=Decision.DELIVER))
    found = what_would_change(request, policy)
    assert found.decision is None
    assert all(alone.decision is None for alone in found.alone)


@pytest.mark.parametrize("names", [("structure.limit",), ("html.link-mismatch", "html.credential-form")])
def test_it_always_answers(policy, names):
    assert what_would_change(concluded(policy, *names), policy).verdict


def rule(name: str, when: str | tuple[str, ...], weight: int, **more: object) -> Rule:
    given = {"id": name, "name": name, "description": "x", "when": when, "verdict": "phishing", "weight": weight}
    words = {"summary": name.replace(".", " "), "severity": "low", "falsePositives": "x"}
    return msgspec.convert({**given, **words, **more}, Rule)


def dependent(policy: Policy, *rules: Rule) -> Policy:
    """Return the shipped policy with these rules alone."""
    by_finding: dict[str, tuple[Rule, ...]] = {}
    for each in rules:
        by_finding[each.needs[0]] = (*by_finding.get(each.needs[0], ()), each)
    return replace(policy, rules=rules, rules_by_finding=by_finding)


def test_rules_that_depend_on_a_finding_fall_together(policy):
    few = dependent(
        policy,
        rule("a.link", "a.link", 45),
        rule("a.first", "a.first", 0),
        rule("a.both", ("a.link", "a.first"), 30),
        rule("a.request", ("a.text", "a.first"), 30),
    )
    request = concluded(few, "a.link", "a.first", "a.text")
    assert request.judgement.verdict is Verdict.PHISHING
    found = {each.reasons[0].rule: each for each in what_would_change(request, few).alone}
    assert {name: {reason.rule for reason in each.reasons} for name, each in found.items()} == {
        "a.link": {"a.link", "a.both"},
        "a.first": {"a.first", "a.both", "a.request"},
        "a.request": {"a.request"},
    }, "the second finding of a combination counts, too"


def test_a_rule_that_takes_the_place_of_another_is_counted(policy):
    few = dependent(
        policy,
        rule("a.strong", "a.strong", 100),
        rule("a.weak", "a.weak", 100, unless=["a.strong"]),
        rule("a.other", "a.other", 10),
    )
    found = what_would_change(concluded(few, "a.strong", "a.weak", "a.other"), few)
    assert found.alone == (), "without the strong finding the weak one convicts"
    assert found.together is not None
    assert {reason.rule for reason in found.together.reasons} == {"a.strong", "a.weak"}
    assert found.together.verdict is Verdict.CLEAN


def test_a_replacing_rule_is_named(policy):
    few = dependent(policy, rule("a.strong", "a.strong", 100), rule("a.weak", "a.weak", 60, unless=["a.strong"]))
    (alone,) = what_would_change(concluded(few, "a.strong", "a.weak"), few).alone
    assert (alone.verdict, [reason.rule for reason in alone.instead]) == (Verdict.SUSPICIOUS, ["a.weak"])
