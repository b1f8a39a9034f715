"""The event of a judged message, and which messages get one."""

from typing import Literal
from uuid import UUID

from msgspec import Struct

from mailwarden.events.catalogue import MessageScanned, first, short
from mailwarden.events.outbox import encode_data
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest

Selection = Literal["all", "notClean", "none"]
_STEPS = 1 << 20


class ScannedEvents(Struct, frozen=True):
    """Which scanned messages get an event: by verdict, and then a share of them."""

    selection: Selection = "all"
    share: float = 1.0

    def event_of(self, request: FinishedRequest) -> tuple[UUID, str] | None:
        """Return the id and the data of the request's event, or None if it gets none."""
        return (new_ggrid(), encode_data(judged(request))) if self.includes(request) else None

    def includes(self, request: FinishedRequest) -> bool:
        """Return whether the message is selected; every guard and every retry selects the same messages."""
        if self.selection == "none":
            return False
        if self.selection == "notClean" and request.judgement.verdict is Verdict.CLEAN:
            return False
        return self.share >= 1 or request.ggrid.int % _STEPS < self.share * _STEPS


NO_SCANNED_EVENTS = ScannedEvents("none")


def judged(request: FinishedRequest) -> MessageScanned:
    """Return the data of a judged message; texts and lists are bounded, and nothing of the body is in it."""
    summary, envelope = request.summary, request.envelope
    return MessageScanned(
        ggrid=request.ggrid,
        verdict=request.judgement.verdict,
        decision=request.ruling.decision,
        tags=first(request.tags),
        sender=short(envelope.sender),
        recipients=first(envelope.recipients),
        recipient_count=len(envelope.recipients),
        from_address=short(summary.from_address),
        subject=short(summary.subject),
        message_id=short(summary.message_id),
        sha256=summary.sha256,
        size=summary.size,
        source=request.source,
        guard=request.guard,
        remote_address=envelope.remote_address,
        campaign=request.campaign.own if request.campaign else None,
        profile=request.profile,
        incomplete=request.judgement.incomplete,
        received=request.created,
        completed=request.completed,
    )
