"""What the console asks abby about the deployment: the colour, the guards, and the configuration in force."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from msgspec import Struct

from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.serving.spool import Spooled
from mailwarden.settings.effective import Setting
from mailwarden.wire.guard import AnalyzerDone, GuardStatus
from mailwarden.wire.scanning import MessageAnalysisRequest


class GuardView(Struct, frozen=True):
    """One guard as abby sees it; without a status it did not answer."""

    name: str
    status: GuardStatus | None


class TokenView(Struct, frozen=True):
    """A static token of the Email Scanning API, without the token."""

    name: str
    permissions: tuple[str, ...]


class Deployment(Protocol):
    async def colour(self) -> str:
        """Return GREEN, YELLOW or RED, as the status of the API does."""

    def guards(self) -> Sequence[GuardView]: ...

    def database_up(self) -> bool: ...

    def tokens(self) -> Sequence[TokenView]: ...

    async def configurations(self) -> Sequence[tuple[str, Sequence[Setting]]]:
        """Return every setting of this abby and of each guard with its source; secrets are masked."""


Step = AnalyzerDone | FinishedRequest


class Analyses(Protocol):
    def watch(
        self, scope: Scope, message: Spooled, request: MessageAnalysisRequest, *, stored: bool, request_id: str
    ) -> AsyncGenerator[Step, None]:
        """Yield what each analyzer did as it finishes, and the finished guard request as the last.

        The first step raises where nothing can begin: TenantForbidden where the message would belong to a tenant
        outside of the scope, Overloaded, CoreUnreachable. A later one raises where the analysis could not be
        finished; without a finished request there is no result. Close the generator when done (`aclosing`).
        """
