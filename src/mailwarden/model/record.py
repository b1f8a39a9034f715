"""A finished guard request as history stores it: the findings, the decision and all its inputs, never the body."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence
from mailwarden.model.listing import Listing
from mailwarden.model.outcome import Decision, Judgement, Ruling
from mailwarden.model.similarity import Similarity
from mailwarden.model.tenant import AssignedBy, Profile


class PartSummary(Struct, frozen=True, omit_defaults=True):
    """One part: an attachment or a body."""

    path: str
    media_type: str
    name: str
    size: int
    sha256: str
    listed_name: str = ""  # the name that lists match, if clients add an extension that `name` lacks


class LinkSummary(Struct, frozen=True, omit_defaults=True):
    """One link: its visible text, its target, and the host of the target; the text of a bare URL is the URL."""

    text: str
    target: str
    host: str = ""


class HopSummary(Struct, frozen=True, omit_defaults=True):
    """One Received line, as far as it could be parsed; any server or sender may have written it."""

    from_host: str = ""
    by_host: str = ""
    address: str = ""  # the client that `by_host` names
    time: str = ""  # as written


class MessageSummary(Struct, frozen=True, omit_defaults=True):
    size: int
    sha256: str
    from_address: str = ""
    from_name: str = ""
    reply_to: str = ""
    to: tuple[str, ...] = ()
    subject: str = ""
    message_id: str = ""
    date: str = ""
    parts: tuple[PartSummary, ...] = ()
    url_hosts: tuple[str, ...] = ()
    links: tuple[LinkSummary, ...] = ()  # the first link to each host, then the others, up to a limit
    hops: tuple[HopSummary, ...] = ()  # the latest first, as in the message
    references: tuple[str, ...] = ()  # the messages of the conversation that it answers: the first and the latest ones
    similarity: Similarity = Similarity()  # by which messages are grouped into campaigns


class CampaignIds(Struct, frozen=True):
    """The group of similar messages of a message: within its tenant, and over all tenants.

    Only users who see all tenants may learn `shared`: it depends on the mail of other tenants.
    """

    own: UUID
    shared: UUID


class FinishedRequest(Struct, frozen=True, omit_defaults=True):
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
    campaign: CampaignIds | None = None  # assigned when history stores the message; None: too little to compare
    unshared: tuple[Decision, ...] = ()  # decisions that became `quarantine` because other recipients do not share them

    @property
    def tags(self) -> tuple[str, ...]:
        """Return every tag of the message, sorted and unique."""
        return tuple(sorted({*self.judgement.tags, *self.ruling.tags}))
