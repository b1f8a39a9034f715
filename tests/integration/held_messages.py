"""Guard requests that end in quarantine, for the tests of it."""

from datetime import UTC, datetime
from hashlib import sha256
from uuid import UUID

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Judgement, Ruling, Verdict
from mailwarden.model.record import CampaignIds, FinishedRequest, MessageSummary

RAW = b"From: Eve <eve@evil.example>\r\nSubject: Cheap\r\n\r\n" + bytes(range(256)) * 10


def finished(
    tenant: UUID,
    *,
    verdict: Verdict = Verdict.SPAM,
    subject: str = "Cheap",
    sender: str = "eve@evil.example",
    recipients: tuple[str, ...] = ("ann@north.example",),
    raw: bytes = RAW,
    campaign: CampaignIds | None = None,
) -> FinishedRequest:
    """Return a guard request that was decided to be held."""
    now = datetime.now(UTC)
    return FinishedRequest(
        ggrid=new_ggrid(),
        tenant=tenant,
        created=now,
        completed=now,
        source="smtp",
        guard="guard-1",
        envelope=Envelope(sender, recipients),
        summary=MessageSummary(len(raw), sha256(raw).hexdigest(), from_address=sender, subject=subject),
        evidence=Evidence(()),
        judgement=Judgement(verdict, "A sentence.", (), {}, ()),
        ruling=Ruling(Decision.QUARANTINE, (), ()),
        campaign=campaign,
    )
