"""A tenant: one customer of the deployment, with the recipient domains that belong to it."""

from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class Profile(StrEnum):
    """How strictly a tenant's verdicts become decisions."""

    BALANCED = "balanced"
    STRICT = "strict"
    MONITOR = "monitor"  # nothing is held back but malware and what could not be looked at


class Tenant(Struct, frozen=True):
    uid: UUID
    name: str
    is_default: bool = False
    profile: Profile = Profile.BALANCED
    domains: tuple[str, ...] = ()
    retention_days: int | None = None  # where its history is kept for less long than the deployment's
    weights: dict[str, int] = {}  # of rules that count otherwise for this tenant
    quarantine_days: dict[str, int] = {}  # of verdicts, or `default`, whose messages are held for other than usual
    quarantine_digest: bool = False  # its recipients are told each day what is held for them


class AssignedBy(StrEnum):
    """How a guard request came to its tenant."""

    REQUEST = "request"
    DOMAINS = "domains"
    DEFAULT = "default"


class Assignment(Struct, frozen=True):
    tenant: UUID
    by: AssignedBy
    profile: Profile = Profile.BALANCED
    weights: dict[str, int] = {}


class RecipientGroup(Struct, frozen=True):
    """The recipients of one message that belong to one tenant."""

    assignment: Assignment
    recipients: tuple[str, ...] = ()

    @property
    def tenant(self) -> UUID:
        return self.assignment.tenant
