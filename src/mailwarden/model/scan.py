"""The record of one message to scan, from the source that received it to the workers."""

import math
from collections.abc import AsyncIterator, Iterable
from typing import Protocol
from uuid import UUID

from msgspec import Struct, field

from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.tenant import RecipientGroup

CHUNK = 262_144
Flow = tuple[str, str, str]  # tenant, scan source, client; they take turns for a worker


class RawMessage(Protocol):
    """The bytes of one message, in memory or in a spool file."""

    @property
    def size(self) -> int: ...

    @property
    def in_memory(self) -> bool: ...

    def data(self) -> bytes: ...

    def open_to_read(self) -> int | None:
        """Return a new read-only file descriptor of a message that is not in memory, or None; the caller closes it."""

    def chunks(self, size: int = CHUNK) -> Iterable[bytes]: ...

    def stream(self, size: int = CHUNK) -> AsyncIterator[bytes]:
        """Yield the bytes without blocking the event loop on the disk."""


class Scan(Struct, frozen=True):
    """One message to scan."""

    source: str  # the scan source
    envelope: Envelope
    groups: tuple[RecipientGroup, ...]  # the recipients by tenant; each tenant has its own judgement and decision
    message: RawMessage
    ggrid: UUID = field(default_factory=new_ggrid)
    deadline: float = math.inf  # of the caller, by the monotonic clock; guard has its own besides
    request_id: str = ""
    stored: bool = True  # False: a user tests a message, and neither history nor a list entry counts it
    watched: bool = False  # whether the caller wants each analyzer that finishes
    session_open: bool = False  # the sender waits for an SMTP reply, which may be a rejection

    @property
    def flow(self) -> Flow:
        """Return the key for fair scheduling of workers: with several tenants that of the first."""
        return str(self.groups[0].tenant), self.source, self.envelope.remote_address or ""
