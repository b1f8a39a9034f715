"""The status of a message at the top of its page."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from msgspec.structs import replace

from mailwarden.console.message_status import needs_confirmation, status_of, would_have_been
from mailwarden.console.message_view import view_of
from mailwarden.console.texts import COLOURS
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.outcome import Decision, Reason, Ruling, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import Assignment, Profile
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy
from mailwarden.quarantine.model import HeldMessage, HeldRecipient, State
from tests.samples.finished import finished_request

POLICY = load_policy()
NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
LATE = datetime(2026, 11, 16, 22, 11, tzinfo=UTC)


def held(*recipients: HeldRecipient, verdict: Verdict = Verdict.SPAM, address: bytes | None = b"x") -> HeldMessage:
    return HeldMessage(
        uid=uuid4(), tenant=uuid4(), ggrid=uuid4(), vault=uuid4(), address=address, size=1, sender="a@b.example",
        from_address="a@b.example", from_name="", subject="Hello", verdict=verdict, received=NOON, expires=LATE,
        missing=False, recipients=recipients,
    )  # fmt: skip


def sentences(message: HeldMessage) -> list[str]:
    return [line.sentence for line in status_of(None, message, POLICY)]


def test_each_state_of_a_held_message_has_a_line() -> None:
    message = held(
        HeldRecipient("ann@x.example", State.RELEASED, changed_by="user:alice", changed_at=LATE),
        HeldRecipient("bob@x.example"),
        HeldRecipient("eve@x.example", State.DELETED, changed_by="digest:eve@x.example", changed_at=LATE),
        HeldRecipient("joe@x.example", State.RELEASING, changed_by="user:alice", changed_at=LATE),
    )
    assert sentences(message) == [
        "Held since 2026-11-16 12:00 UTC for bob@x.example, kept until 2026-11-16 22:11 UTC.",
        "Being released to joe@x.example, requested by alice, 2026-11-16 22:11 UTC.",
        "Released to ann@x.example by alice, 2026-11-16 22:11 UTC.",
        "Deleted for eve@x.example by the recipient eve@x.example, 2026-11-16 22:11 UTC.",
    ]


def test_many_recipients_are_counted() -> None:
    message = held(*(HeldRecipient(f"u{number}@x.example") for number in range(1_200)), address=None)
    (line,) = sentences(message)
    assert "u0@x.example, u1@x.example, u2@x.example and 1,197 more, its content is deleted." in line


def test_the_response_is_shown_where_nothing_is_held() -> None:
    (line,) = status_of(finished_request(), None, POLICY)
    assert line.sentence.startswith("The API answered “quarantine”, ")
    (line,) = status_of(finished_request(source="smtp"), None, POLICY)
    assert line.sentence.startswith("Quarantined, ")
    assert status_of(None, None, POLICY) == ()


@pytest.mark.parametrize(
    ("source", "reply"),
    [
        ("smtp", "The sender received: 451 4.7.1,"),
        ("rspamdApi", "The client received: soft reject,"),
        ("restApi", "The API answered “undecided”;"),
    ],
)
def test_an_undecided_message_shows_what_the_sender_received(source: str, reply: str) -> None:
    (line,) = status_of(finished_request(source=source, ruling=Ruling(Decision.UNDECIDED, (), ())), None, POLICY)
    assert line.sentence.startswith(reply)
    assert COLOURS[line.word] == "yellow"


@pytest.mark.parametrize("decision", Decision)
@pytest.mark.parametrize("source", ["smtp", "restApi"])
def test_every_decision_has_a_line(decision: Decision, source: str) -> None:
    request = finished_request(source=source, ruling=Ruling(decision, (), ()))
    (line,) = status_of(request, None, POLICY, reads_quarantine=False)
    assert line.word == decision
    assert line.sentence


def monitored(*names: str) -> FinishedRequest:
    request = finished_request(profile=Profile.MONITOR)
    findings = tuple(Finding(name) for name in names)
    evidence = Evidence((Report("tested", True, Status.FINISHED, 1.0, findings),))
    judgement = judge(evidence, POLICY)
    ruling = decide(judgement, Assignment(request.tenant, request.assigned_by, Profile.MONITOR), POLICY)
    return replace(request, evidence=evidence, judgement=judgement, ruling=ruling)


def test_a_monitor_tenant_learns_what_would_have_happened() -> None:
    request = monitored("rspamd.gtube")
    assert request.ruling.decision is Decision.DELIVER
    assert would_have_been(request, POLICY) is Decision.QUARANTINE
    (line,) = status_of(request, None, POLICY)
    assert line.sentence.startswith("Delivered; it would have been quarantined, ")
    assert view_of(request, POLICY).would is Decision.QUARANTINE
    assert would_have_been(replace(request, profile=Profile.BALANCED), POLICY) is None
    assert would_have_been(monitored(), POLICY) is None


@pytest.mark.parametrize("verdict", Verdict)
def test_dangerous_verdicts_need_confirmation(verdict: Verdict) -> None:
    dangerous = verdict in (Verdict.MALWARE, Verdict.PHISHING, Verdict.FRAUD)
    assert needs_confirmation(held(verdict=verdict), finished_request()) is dangerous
    assert needs_confirmation(held(verdict=verdict), None), "the reasons are unknown"


def test_a_reason_for_malware_needs_confirmation() -> None:
    request = finished_request()
    reasons = (Reason("x.y", "x", Verdict.MALWARE, 30, "A program."),)
    suspected = replace(request, judgement=replace(request.judgement, reasons=reasons))
    assert needs_confirmation(held(), suspected)
    assert not needs_confirmation(held(), request)
