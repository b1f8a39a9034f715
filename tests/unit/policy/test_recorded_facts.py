"""A message is judged again from the recorded inputs of its decision, and not from its tags and texts."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.listing import RECORDED, ListHit, Listing
from mailwarden.model.outcome import Decision, Step, Verdict
from mailwarden.model.place import area
from mailwarden.model.record import FinishedRequest, MessageSummary, PartSummary
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.counterfactual import what_would_change
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.list_effects import report_of, without_allowed_files
from mailwarden.policy.rejudge import (
    Edit,
    PolicyChoice,
    RejudgedMessage,
    compare,
    judge_again,
    observables_of,
    stored_of,
    without_lists,
)
from mailwarden.policy.rules import load_policy
from mailwarden.scan.shared_answer import settle
from tests.samples.finished import part_of
from tests.unit.lists.memory_lists import TENANT

POLICY = load_policy()
FILE, OTHER = "a" * 64, "b" * 64
ALLOWED = Listing(
    acting=(ListHit("file-hash-allow", FILE, TENANT, value=FILE),), allowed_files=frozenset({FILE})
)  # fmt: skip
NO_ENTRIES = Listing()
BLOCKED = Listing(acting=(ListHit("ip-block", "192.0.2.7", TENANT, value="192.0.2.7"),))


def finished(
    *findings: Finding,
    listing: Listing = NO_ENTRIES,
    profile: Profile = Profile.BALANCED,
    session_open: bool = False,
    cleared: bool = False,
) -> FinishedRequest:
    """Do what guard does after the analysis."""
    now = datetime.now(UTC)
    parts = (PartSummary("1", "text/plain", "", 1, "c" * 64), PartSummary("2", "application/zip", "a.zip", 1, FILE))
    evidence = Evidence(
        (Report("clamav", True, Status.FINISHED, 1.0, findings, convicts_files=True), report_of(listing, 0.1))
    )
    judgement = judge(evidence, POLICY)
    request = FinishedRequest(
        new_ggrid(), TENANT, now, now, "smtp", "g", Envelope("ada@north.example", ("bob@south.example",), "192.0.2.7"),
        MessageSummary(1, "", from_address="ada@north.example", parts=parts), evidence, judgement,
        decide(judgement, Assignment(TENANT, AssignedBy.REQUEST), POLICY), profile, session_open=session_open,
        listing=listing.recorded(), cleared_files=listing.allowed_files if cleared else frozenset(),
    )  # fmt: skip
    rest = without_allowed_files(evidence, listing, observables_of(request).files, engines_clear=cleared)
    rest_judgement = judge(rest, POLICY) if listing.allowed_files else None
    assignment = Assignment(TENANT, AssignedBy.REQUEST, profile)
    ruling = decide(
        judgement, assignment, POLICY, session_open=session_open, listing=listing, rest_judgement=rest_judgement
    )
    return replace(request, ruling=ruling)


def without_texts(request: FinishedRequest) -> FinishedRequest:
    """Return the request with other tags and sentences."""
    trace = (Step("profile", "clean under the profile strict: quarantine"),)
    ruling = replace(request.ruling, tags=("policy.default-tenant", "list.file-hash-allow"), trace=trace)
    return replace(request, ruling=ruling)


def again(request: FinishedRequest) -> Decision | None:
    return judge_again(request, POLICY, without_lists(request.evidence), request.listing)[1]


MALWARE = Finding("clamav.malware", facts={"signature": "Test.Signature"})


@pytest.mark.parametrize(
    "request_",
    [
        finished(),
        finished(MALWARE),
        finished(MALWARE, listing=ALLOWED),
        finished(MALWARE, listing=ALLOWED, cleared=True),
        finished(listing=BLOCKED),
        finished(listing=BLOCKED, session_open=True),
        finished(listing=BLOCKED, profile=Profile.MONITOR, session_open=True),
    ],
)
def test_the_recorded_inputs_lead_to_the_recorded_decision(request_):
    bare = without_texts(request_)
    assert again(bare) is request_.ruling.decision
    assert what_would_change(bare, POLICY).decision is request_.ruling.decision
    found = compare([stored_of(bare)], PolicyChoice(POLICY), PolicyChoice(POLICY))
    assert found.decisions == {request_.ruling.decision: (1, 1)}


@pytest.mark.parametrize(("session_open", "decision"), [(True, Decision.BOUNCE), (False, Decision.QUARANTINE)])
def test_a_new_entry_bounces_a_delivered_message_if_the_session_was_open(session_open, decision):
    request = finished(session_open=session_open)
    assert request.ruling.decision is Decision.DELIVER
    outcome = RejudgedMessage(request, Edit("ip-block", frozenset({"192.0.2.7"}), TENANT)).judge(POLICY, ())
    assert (outcome.verdict_after, outcome.decision_after) == (Verdict.BLOCKED, decision)


def test_an_engine_that_cleared_a_file_clears_it_with_further_files_too():
    request = finished(MALWARE, listing=ALLOWED, cleared=True)
    hits = (*ALLOWED.acting, ListHit("file-hash-allow", OTHER, TENANT, value=OTHER))
    more = Listing(acting=hits, allowed_files=frozenset({FILE, OTHER}))
    rest = without_lists(request.evidence)
    assert judge_again(request, POLICY, rest, more)[1] is Decision.DELIVER
    other = Listing(acting=hits[1:], allowed_files=frozenset({OTHER}))
    assert judge_again(request, POLICY, rest, other)[1] is None


def test_a_file_without_allow_entry_is_left_to_the_engine():
    request = finished(MALWARE)
    outcome = RejudgedMessage(request, Edit("file-hash-allow", frozenset({FILE}), TENANT)).judge(POLICY, ())
    assert outcome.undetermined


def test_a_bounce_that_other_recipients_do_not_share_stays_quarantine():
    bounced = finished(listing=BLOCKED, session_open=True)
    other = replace(finished(), tenant=type(TENANT)(int=9))
    mine = next(part.finished for part in settle([part_of(bounced), part_of(other)]) if part.tenant == TENANT)
    assert mine.ruling.decision is Decision.QUARANTINE
    assert again(mine) is Decision.QUARANTINE
    assert again(bounced) is Decision.BOUNCE


def test_entries_with_the_same_beginning_are_different_entries():
    long = "north.example/" + "a" * 300
    listing = Listing(acting=(ListHit("url-block", long, TENANT, value=f"http://{long}"),))
    request = finished(listing=listing)
    assert RejudgedMessage(request, Edit("url-block", frozenset({long}), TENANT, adds=False)).acted
    assert not RejudgedMessage(request, Edit("url-block", frozenset({f"{long}b"}), TENANT, adds=False)).acted


def test_more_entries_than_are_recorded_leave_the_outcome_open():
    hits = tuple(ListHit("attachment-block", f".a{number}", TENANT, value="x") for number in range(RECORDED + 1))
    request = finished(listing=Listing(acting=hits))
    assert len(request.listing.acting) == RECORDED
    outcome = RejudgedMessage(request, Edit("attachment-block", frozenset({".a1"}), TENANT, adds=False)).judge(
        POLICY, ()
    )
    assert outcome.undetermined


def test_a_protected_sender_is_still_one_without_an_entry():
    listing = Listing(acting=BLOCKED.acting, protected_sender="north.example")
    request = finished(Finding("dns.unverified-sender", area("From"), {"domain": "north.example"}), listing=listing)
    outcome = RejudgedMessage(request, Edit("ip-block", frozenset({"192.0.2.7"}), TENANT, adds=False)).judge(POLICY, ())
    expected = finished(*request.evidence.reports[0].findings, listing=replace(listing, acting=()))
    assert (outcome.verdict_after, outcome.decision_after) == (expected.judgement.verdict, expected.ruling.decision)
