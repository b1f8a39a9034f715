"""The events of a message in the order of their time."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from mailwarden.console.message_timeline import events_of
from mailwarden.model.outcome import Verdict
from mailwarden.quarantine.model import HeldMessage, HeldRecipient, State
from mailwarden.user_reports.reports import Kind, TrainingState, UserReport
from tests.samples.finished import finished_request

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def after(minutes: int) -> datetime:
    return NOW + timedelta(minutes=minutes)


def test_events_are_sorted_and_grouped() -> None:
    people = (
        HeldRecipient("ann@x.example", State.RELEASED, changed_by="user:alice", changed_at=after(30)),
        HeldRecipient("bob@x.example", State.RELEASED, changed_by="user:alice", changed_at=after(30)),
        HeldRecipient("eve@x.example", State.DELETED, changed_by="user:root", changed_at=after(10)),
        HeldRecipient("joe@x.example", State.HELD, "550 No", "user:alice", after(40)),
        HeldRecipient("kim@x.example"),
    )
    held = HeldMessage(
        uid=uuid4(), tenant=uuid4(), ggrid=uuid4(), vault=uuid4(), address=b"x", size=1, sender="a@b.example",
        from_address="", from_name="", subject="", verdict=Verdict.SPAM, received=NOW, expires=after(99),
        missing=False, recipients=people,
    )  # fmt: skip
    report = UserReport(uuid4(), held.tenant, Kind.SPAM, TrainingState.WAITING, 1, None, "", "user:carl", after(20))
    found = events_of(None, held, [report])
    assert [(event.moment, event.title) for event in found] == [
        (NOW, "Held for ann@x.example, bob@x.example, eve@x.example and 2 more"),
        (after(10), "Deleted: eve@x.example, by root"),
        (after(20), "Reported as spam by carl"),
        (after(30), "Released: ann@x.example, bob@x.example, by alice"),
        (after(40), "Release failed: joe@x.example, by alice"),
    ]
    assert found[-1].details == ("joe@x.example: 550 No",)


def test_a_scan_has_two_events() -> None:
    request = finished_request()
    received, judged = events_of(request, None)
    assert received.title.startswith("Received by ")
    assert request.judgement.verdict in judged.title
    assert judged.details[0] == request.judgement.summary
    assert events_of(None, None) == ()
