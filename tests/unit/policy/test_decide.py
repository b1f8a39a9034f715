"""The decision follows from the verdict, the tenant's profile and the state of the SMTP session."""

from uuid import UUID

import pytest

from mailwarden.model.listing import ListHit, Listing
from mailwarden.model.outcome import Decision, Judgement, Ruling, Verdict
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.decide import STEPS, decide

BLOCKED_ADDRESS = Listing(acting=(ListHit("ip-block", "192.0.2.7"),))

TABLE = [
    ("malware", "quarantine", "quarantine", "quarantine"),
    ("phishing", "quarantine", "quarantine", "deliver"),
    ("fraud", "quarantine", "quarantine", "deliver"),
    ("spoof", "quarantine", "quarantine", "deliver"),
    ("blocked", "quarantine", "quarantine", "deliver"),
    ("spam", "quarantine", "quarantine", "deliver"),
    ("suspicious", "deliver", "quarantine", "deliver"),
    ("bulk", "deliver", "deliver", "deliver"),
    ("clean", "deliver", "deliver", "deliver"),
    ("unknown", "undecided", "undecided", "undecided"),
]


def judged(verdict: str, *, tags: tuple[str, ...] = (), incomplete: bool = False, forced: bool = False) -> Judgement:
    return Judgement(Verdict(verdict), "", (), {}, tags, incomplete, forced)


def assigned(profile: Profile = Profile.BALANCED, by: AssignedBy = AssignedBy.REQUEST) -> Assignment:
    return Assignment(UUID(int=1), by, profile)


def test_the_table_has_every_verdict_in_order():
    assert [row[0] for row in TABLE] == [verdict.value for verdict in Verdict]


@pytest.mark.contract("2")
@pytest.mark.parametrize(("verdict", "balanced", "strict", "monitor"), TABLE)
def test_each_verdict_brings_the_decision_of_the_contract(policy, verdict, balanced, strict, monitor):
    assert decide(judged(verdict), assigned(), policy).decision.value == balanced
    assert decide(judged(verdict), assigned(Profile.STRICT), policy).decision.value == strict
    assert decide(judged(verdict), assigned(Profile.MONITOR), policy).decision.value == monitor


@pytest.mark.contract("2")
def test_suspicious_is_delivered_with_a_warning(policy):
    assert decide(judged("suspicious"), assigned(), policy).tags == ("policy.warn",)
    assert decide(judged("suspicious"), assigned(Profile.STRICT), policy).tags == ()


@pytest.mark.parametrize("profile", Profile)
def test_a_tripped_limit_is_quarantined_in_every_profile_without_a_warning(policy, profile):
    ruling = decide(judged("suspicious", forced=True), assigned(profile), policy)
    assert (ruling.decision, ruling.tags) == (Decision.QUARANTINE, ())


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("suspicious", "a rule forces quarantine, in every profile"),
        ("malware", "a rule forces quarantine: quarantine stands"),
    ],
)
def test_the_trace_names_the_rule_and_not_a_limit(policy, verdict, outcome):
    trace = decide(judged(verdict, forced=True), assigned(), policy).trace
    assert [str(step.outcome) for step in trace if step.step == "forced quarantine"] == [outcome]


@pytest.mark.parametrize("verdict", ["suspicious", "bulk", "clean"])
def test_an_incomplete_judgement_is_not_delivered_even_if_its_verdict_were(policy, verdict):
    assert decide(judged(verdict, incomplete=True), assigned(), policy).decision is Decision.UNDECIDED


def test_no_allow_entry_delivers_an_incomplete_message(policy):
    allowed = Listing(acting=(ListHit("sender-allow", "ada@north.example", UUID(int=1)),))
    ruling = decide(judged("suspicious", incomplete=True), assigned(Profile.STRICT), policy, listing=allowed)
    assert ruling.decision is Decision.UNDECIDED


def reported(ruling: Ruling) -> str:
    return str(next(step.outcome for step in ruling.trace if step.step == "monitor"))


@pytest.mark.parametrize(("verdict", "balanced"), [(row[0], row[1]) for row in TABLE])
def test_watch_only_shows_the_decision_of_the_profile(policy, verdict, balanced):
    ruling = decide(judged(verdict), assigned(Profile.MONITOR), policy)
    differs = ruling.decision != balanced
    assert ("policy.monitor" in ruling.tags) is differs
    assert reported(ruling).endswith(balanced)
    assert ("would have decided" in reported(ruling)) is differs


@pytest.mark.contract("2 malware floor")
def test_watch_only_delivers_no_malware_and_no_incomplete_message(policy):
    watching = assigned(Profile.MONITOR)
    assert decide(judged("malware"), watching, policy).decision is Decision.QUARANTINE
    assert decide(judged("phishing", incomplete=True), watching, policy).decision is Decision.UNDECIDED
    assert decide(judged("suspicious", forced=True), watching, policy).decision is Decision.QUARANTINE


def test_watch_only_reports_a_bounce(policy):
    ruling = decide(judged("blocked"), assigned(Profile.MONITOR), policy, session_open=True, listing=BLOCKED_ADDRESS)
    assert (ruling.decision, ruling.tags) == (Decision.DELIVER, ("policy.monitor",))
    assert reported(ruling) == "not enforced: the profile balanced would have decided bounce"


def test_watch_only_reports_a_delivery_by_a_list(policy):
    allowed = Listing(acting=(ListHit("sender-allow", "ada@north.example", UUID(int=1)),))
    ruling = decide(judged("spam"), assigned(Profile.MONITOR), policy, listing=allowed)
    assert (ruling.decision, reported(ruling)) == (Decision.DELIVER, "the profile balanced decides the same: deliver")
    assert "policy.monitor" not in ruling.tags


@pytest.mark.contract("2")
def test_a_blocked_address_bounces_only_while_the_session_is_open(policy):
    blocked = judged("blocked")
    ruling = decide(blocked, assigned(), policy, session_open=True, listing=BLOCKED_ADDRESS)
    assert ruling.decision is Decision.BOUNCE
    ruling = decide(blocked, assigned(), policy, listing=BLOCKED_ADDRESS)
    assert (ruling.decision, ruling.tags) == (Decision.QUARANTINE, ("policy.bounce-suppressed",))


@pytest.mark.contract("3")
def test_the_default_tenant_is_tagged(policy):
    assert decide(judged("clean"), assigned(by=AssignedBy.DEFAULT), policy).tags == ("policy.default-tenant",)
    assert decide(judged("clean"), assigned(by=AssignedBy.DOMAINS), policy).tags == ()


def test_every_step_leaves_a_line_in_the_trace(policy):
    trace = decide(judged("spam"), assigned(), policy).trace
    assert [step.step for step in trace] == [name for name, _ in STEPS]
    assert "spam under the profile balanced: quarantine" in [step.outcome for step in trace]


def test_the_malware_floor_is_the_first_step(policy):
    assert STEPS[0][0] == "malware floor"
