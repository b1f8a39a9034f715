"""A guard in abby's own process: the calls of abby."""

from collections.abc import Callable, Sequence
from typing import Protocol

from mailwarden.hop.records import GuardStatus
from mailwarden.model.evidence import Report
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.settings.effective import Setting

Observer = Callable[[Report], None]


class LocalGuard(Protocol):
    """The parts of a guard that abby calls."""

    def status(self) -> GuardStatus: ...

    def settings(self) -> Sequence[Setting]: ...

    async def scan(self, scan: Scan, observe: Observer, traceparent: str) -> FinishedRequest:
        """Return the finished request, or raise a MailwardenError."""
        ...
