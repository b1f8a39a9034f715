"""A finished guard request as history stores it: what was found, what was decided, and the inputs of the decision."""

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
    session_open: bool = False  # the sender waited for an SMTP reply, so that a bounce was possible
    listing: Listing = Listing()  # the list entries that acted, as `Listing.recorded` bounds them
    cleared_files: frozenset[str] = frozenset()  # SHA-256 of allowed files that alone made the engines convict
    unshared: tuple[Decision, ...] = ()  # became `quarantine`: other recipients do not share them

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag of the message, sorted and unique."""
        return tuple(sorted({*self.judgement.tags, *self.ruling.tags}))
