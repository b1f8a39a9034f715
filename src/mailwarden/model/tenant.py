"""A tenant: one customer of the deployment, with the recipient domains that belong to it."""

from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class Profile(StrEnum):
    """How strictly a tenant's verdicts become decisions."""

    BALANCED = "balanced"
    STRICT = "strict"
    MONITOR = "monitor"  # holds only malware and messages that could not be inspected


class Tenant(Struct, frozen=True):
    uid: UUID
    name: str
    is_default: bool = False
    profile: Profile = Profile.BALANCED
    domains: tuple[str, ...] = ()
    retention_days: int | None = None  # if shorter than the deployment's
    weights: dict[str, int] = {}  # of rules with another weight for this tenant
    quarantine_days: dict[str, int] = {}  # days by verdict or `default`, if not the deployment's
    quarantine_digest: bool = False  # recipients get a daily digest of their held messages


class AssignedBy(StrEnum):
    """How the tenant of a guard request was selected."""

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
