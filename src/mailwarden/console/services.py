"""The services that only abby has: the state of the deployment, and scans of uploaded messages."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from msgspec import Struct

from mailwarden.errors import InternalError
from mailwarden.hop.records import AnalyzerDone, GuardStatus
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.serving.spool import Spooled
from mailwarden.settings.effective import Setting
from mailwarden.wire.scanning import ScanParameters

Step = AnalyzerDone | FinishedRequest


class GuardView(Struct, frozen=True):
    """A guard and its last status; None if it did not answer."""

    name: str
    status: GuardStatus | None


class StatusView(Struct, frozen=True):
    """The last known colour of the deployment, and a sentence for each of its causes; none for GREEN."""

    colour: str
    causes: tuple[str, ...] = ()


class TokenView(Struct, frozen=True):
    """A static token of the Email Scanning API, without the token."""

    name: str
    permissions: tuple[str, ...]


class Deployment(Protocol):
    async def colour(self) -> str:
        """Return GREEN, YELLOW or RED, as the status endpoint does."""

    def status(self) -> StatusView:
        """Return the last known colour with its causes, without asking the guards."""

    def guards(self) -> Sequence[GuardView]: ...

    def database_up(self) -> bool: ...

    def tokens(self) -> Sequence[TokenView]: ...

    async def configurations(self) -> Sequence[tuple[str, Sequence[Setting]]]:
        """Return every setting of abby and of each guard with its source, secrets masked."""


class Analyses(Protocol):
    def watch(
        self, scope: Scope, message: Spooled, parameters: ScanParameters, *, stored: bool, request_id: str
    ) -> AsyncGenerator[Step, None]:
        """Yield each finished analyzer, and the finished guard request as the last step.

        The first step raises TenantForbidden (the tenant is outside the scope), Overloaded or CoreUnreachable if the
        scan cannot start. A later step raises if the scan fails; then there is no result. Close the generator with
        `aclosing`.
        """


async def scan_to_end(
    analyses: Analyses, scope: Scope, message: Spooled, parameters: ScanParameters, request_id: str
) -> FinishedRequest:
    """Scan a message, store the result in history and return it."""
    async with aclosing(analyses.watch(scope, message, parameters, stored=True, request_id=request_id)) as steps:
        async for step in steps:
            if isinstance(step, FinishedRequest):
                return step
    raise InternalError("The analysis ended without a result.")
