"""A guard in abby's own process: the record of one scan, and the calls of abby."""

from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from mailwarden.hop.records import GuardStatus
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Report
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import RecipientGroup
from mailwarden.serving.spool import Spooled
from mailwarden.settings.effective import Setting

Observer = Callable[[Report], None]


class LocalScan(Struct, frozen=True):
    """One message for a guard in the same process, with the values that the head of a request has."""

    ggrid: UUID
    envelope: Envelope
    groups: tuple[RecipientGroup, ...]
    message: Spooled
    seconds: float  # left for the analysis
    stored: bool
    traceparent: str


class LocalGuard(Protocol):
    """The parts of a guard that abby calls."""

    def status(self) -> GuardStatus: ...

    def settings(self) -> Sequence[Setting]: ...

    async def scan(self, scan: LocalScan, observe: Observer) -> FinishedRequest:
        """Return the finished request, or raise a MailwardenError."""
        ...
