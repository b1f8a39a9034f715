"""A finished guard request as history stores it: the findings, the decision and all its inputs."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence
from mailwarden.model.judgement import Judgement, Ruling
from mailwarden.model.listing import Listing
from mailwarden.model.outcome import Decision
from mailwarden.model.summary import MessageSummary
from mailwarden.model.tenant import AssignedBy, Profile


class FinishedRequest(Struct, frozen=True):
    """One tenant's part of a guard request. Nothing about the decision has to be read from its texts or tags."""

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
    profile: Profile = Profile.BALANCED  # the tenant's, when the message was decided
    weights: dict[str, int] = {}  # the tenant's own, when the message was judged
    assigned_by: AssignedBy = AssignedBy.REQUEST
    session_open: bool = False  # the SMTP client waited for the reply, so a bounce was possible
    listing: Listing = Listing()  # the list entries that acted, as `Listing.recorded` bounds them
    # SHA-256 of allowed files; the engines convict the message only because of them
    cleared_files: frozenset[str] = frozenset()
    unshared: tuple[Decision, ...] = ()  # decisions that became `quarantine` because other recipients do not share them

    @property
    def tags(self) -> tuple[str, ...]:
        """Return every tag of the message, sorted and unique."""
        return tuple(sorted({*self.judgement.tags, *self.ruling.tags}))
