"""What the console asks for when a person has a message analyzed; abby, which knows the guards, answers."""

from collections.abc import AsyncGenerator
from typing import Protocol

from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.serving.spool import Spooled
from mailwarden.wire.progress import AnalyzerDone
from mailwarden.wire.scanning import MessageAnalysisRequest

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
