"""One answer for several tenants: the most severe decision, and nothing of one tenant in what all of them may read."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from mailwarden.model.listing import ListHit
from mailwarden.model.outcome import Decision, Reason, Step, Verdict
from mailwarden.model.tenant import AssignedBy
from mailwarden.scan.shared_answer import MIXED_TAG, Part, answer_of, public_answer_of, settle, undecided
from tests.samples.finished import finished_request, part_of

D, Q, B, U, X = Decision.DELIVER, Decision.QUARANTINE, Decision.BOUNCE, Decision.UNDECIDED, Decision.DROP
SHARED = Reason("html.link-mismatch", "html", Verdict.PHISHING, 40, "A link misleads.", tag="url.display-mismatch")
OWN = Reason("lists.sender-block", "lists", Verdict.BLOCKED, 100, "`secret` is on the list.", tag="list.sender-block")


def part(number: int, decision: Decision, verdict: Verdict = Verdict.CLEAN, *tags: str) -> Part:
    made = finished_request(UUID(int=number), UUID(int=7))
    judgement = replace(made.judgement, verdict=verdict, tags=(), reasons=(SHARED,), summary="secret")
    ruling = replace(made.ruling, decision=decision, tags=tags, trace=(Step("profile", "secret"),))
    return part_of(replace(made, judgement=judgement, ruling=ruling))


def parts(*decisions: Decision) -> list[Part]:
    return [part(number, decision) for number, decision in enumerate(decisions, start=1)]


@pytest.mark.contract("3 mixed recipients")
@pytest.mark.parametrize(
    ("decisions", "answered", "kept"),
    [
        ([D, D], D, {D}),
        ([D, U], U, {D, U}),
        ([U, Q, D], Q, {U, Q, D}),
        ([B, B], B, {B}),
        ([X, X], X, {X}),
        ([B, D], Q, {Q, D}),
        ([X, D], Q, {Q, D}),
        ([X, B], Q, {Q}),
        ([X, U], Q, {Q, U}),
    ],
)
def test_the_most_severe_decision_is_answered_and_loses_no_mail(decisions, answered, kept) -> None:
    for given in (decisions, decisions[::-1]):
        settled = settle(parts(*given))
        assert answer_of(settled).ruling.decision is answered
        assert {each.decision for each in settled} == kept
        assert all(MIXED_TAG in each.finished.ruling.tags for each in settled)


def test_one_tenant_alone_keeps_its_bounce_and_has_no_tag() -> None:
    given = parts(B)
    assert settle(given) == settle(given, apart=True) == given
    assert answer_of(given) is public_answer_of(given) is given[0].finished


def test_parts_that_are_carried_out_apart_share_their_bounce_alone() -> None:
    assert [each.decision for each in settle(parts(B, B), apart=True)] == [B, B]
    assert [each.decision for each in settle(parts(X, D, U), apart=True)] == [X, D, U]
    mixed = settle(parts(B, D), apart=True)
    assert [each.decision for each in mixed] == [Q, D]
    assert "policy.bounce-suppressed" in mixed[0].finished.tags
    assert "quarantine instead" in mixed[0].finished.ruling.trace[-1].outcome


def test_a_bounce_of_one_tenant_is_reported_as_suppressed() -> None:
    bounced = next(each for each in settle(parts(D, B)) if each.tenant == UUID(int=2))
    assert "policy.bounce-suppressed" in bounced.finished.tags
    dropped = next(each for each in settle(parts(D, X)) if each.tenant == UUID(int=2))
    assert "policy.bounce-suppressed" not in dropped.finished.tags


def test_of_equal_decisions_the_worse_verdict_leads() -> None:
    given = [part(1, D), part(2, D, Verdict.SUSPICIOUS, "policy.warn"), part(3, D, Verdict.BULK)]
    answer = answer_of(settle(given))
    assert (answer.tenant, answer.judgement.verdict) == (UUID(int=2), Verdict.SUSPICIOUS)
    assert "policy.warn" in answer.tags


def test_the_answer_has_the_default_tenant_tag_of_any_part() -> None:
    settled = settle(
        [part(1, Q, Verdict.BLOCKED), part_of(replace(part(2, D).finished, assigned_by=AssignedBy.DEFAULT))]
    )
    assert "policy.default-tenant" in answer_of(settled).tags
    assert "policy.default-tenant" not in settled[0].finished.tags


def test_an_incomplete_analysis_is_undecided_unless_a_part_convicts() -> None:
    unknown = part(1, U, Verdict.UNKNOWN)
    assert undecided([unknown, part(2, D)]) is unknown.finished
    assert undecided([unknown, part(2, Q, Verdict.BLOCKED)]) is None


def test_the_shared_answer_has_no_data_of_one_tenant() -> None:
    blocked = part(1, Q, Verdict.BLOCKED, "policy.monitor").finished
    hit = ListHit("sender-block", "secret", UUID(int=1), "secret")
    blocked = replace(
        blocked,
        judgement=replace(blocked.judgement, tags=("list.sender-block", "url.display-mismatch"), reasons=(OWN, SHARED)),
        ruling=replace(blocked.ruling, entry=hit),
    )
    other = part(2, D).finished
    other = replace(other, judgement=replace(other.judgement, tags=("url.display-mismatch", "list.url-allow")))
    public = public_answer_of(settle([part_of(other), part_of(blocked)]))
    assert (public.ruling.decision, public.judgement.verdict) == (Q, Verdict.BLOCKED)
    assert public.tags == ("url.display-mismatch",)
    assert public.judgement.reasons == (SHARED,)
    assert "secret" not in repr((public.judgement, public.ruling))
