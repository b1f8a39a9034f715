"""A receiver of events, its filter, its format and the state of its deliveries."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from urllib.parse import urlsplit
from uuid import UUID

from msgspec import Struct

from mailwarden.model.scope import Scope

FIRST_PAUSE = 5.0  # seconds after the first failure; each pause is twice as long
MAX_PAUSE = 3_600.0
JITTER = 0.2  # of a pause, both ways, so that receivers at one host do not retry together
GIVE_UP = timedelta(days=3)  # of failures without a success; the outbox keeps events longer
OVERLAP = timedelta(days=1)  # in which the previous secret signs too, after a rotation
BY_USER = "Disabled by an administrator."
MAX_BATCH = 500  # events
MAX_BATCH_SECONDS = 60
PURPOSE = b"mailwarden event receivers 1"  # of the seal


class Kind(StrEnum):
    WEBHOOK = "webhook"
    SYSLOG = "syslog"
    FILE = "file"


class Format(StrEnum):
    NATIVE = "native"
    OCSF = "ocsf"
    ECS = "ecs"


class State(StrEnum):
    ENABLED = "enabled"
    DISABLED = "disabled"


class NewReceiver(Struct, frozen=True):
    """The settings of a new receiver; `types` None is every type, `tenants` None is the whole deployment."""

    name: str
    kind: Kind
    url: str
    format: Format = Format.NATIVE
    types: frozenset[str] | None = None
    tenants: frozenset[UUID] | None = None
    batch_size: int = 1
    batch_seconds: int = 0


class Sealed(Struct, frozen=True):
    """The encrypted parts of a webhook."""

    secret: bytes
    url: bytes


class Receiver(Struct, frozen=True):
    """A stored receiver; its secrets are encrypted, and so is the URL of a webhook: `url` is what may be shown."""

    uid: UUID
    name: str
    kind: Kind
    format: Format
    url: str
    types: frozenset[str] | None
    tenants: frozenset[UUID] | None
    batch_size: int
    batch_seconds: int
    created: datetime
    created_by: str
    state: State
    cursor: str
    sealed_url: bytes | None = None
    secret: bytes | None = None
    previous_secret: bytes | None = None
    previous_until: datetime | None = None
    failing_since: datetime | None = None
    attempts: int = 0
    next_attempt: datetime = datetime.min.replace(tzinfo=UTC)
    last_error: str = ""
    last_delivery: datetime | None = None
    delivered: int = 0
    failed: int = 0
    lost: int = 0

    @property
    def scope(self) -> Scope:
        """Return the tenants whose events it receives."""
        return Scope(self.tenants)

    @property
    def is_paused(self) -> bool:
        """Return whether an administrator disabled it, and not its failures."""
        return self.state is State.DISABLED and self.last_error == BY_USER

    @property
    def target(self) -> str:
        """Return the receiver as lists and the audit log show it."""
        return shown_target(self.kind, self.url)

    @property
    def is_deployment(self) -> bool:
        """Return whether it receives events of the deployment itself too."""
        return self.tenants is None


def shown_target(kind: Kind, url: str) -> str:
    """Return a webhook's scheme and host, because its path can be a secret; return other targets as they are."""
    if kind is not Kind.WEBHOOK:
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/" + ("…" if parts.path.strip("/") or parts.query else "")


def pause_after(attempt: int, random: float, requested: float = 0.0) -> float:
    """Return the seconds until the next attempt; `random` is 0 to 1, `requested` the receiver's Retry-After."""
    pause = min(FIRST_PAUSE * 2.0 ** min(attempt - 1, 20), MAX_PAUSE)
    return max(pause * (1 - JITTER + 2 * JITTER * random), requested)


def gives_up(failing_since: datetime, now: datetime) -> bool:
    return now - failing_since >= GIVE_UP


def url_context(uid: UUID) -> bytes:
    """Return the context of a sealed URL; that of a secret is the receiver's UUID."""
    return uid.bytes + b" url"
