"""A finished guard request, as history keeps it."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence
from mailwarden.model.judgement import Judgement, Ruling
from mailwarden.model.summary import MessageSummary
from mailwarden.model.tenant import Profile


class FinishedRequest(Struct, frozen=True):
    ggrid: UUID
    tenant: UUID
    created: datetime
    completed: datetime
    source: str
    guard: str
    envelope: Envelope
    summary: MessageSummary
    evidence: Evidence
    judgement: Judgement
    ruling: Ruling
    profile: Profile = Profile.BALANCED  # under which it was decided
    weights: dict[str, int] = {}  # of the tenant's own, by which it was judged

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag of the message, sorted and unique."""
        return tuple(sorted({*self.judgement.tags, *self.ruling.tags}))
