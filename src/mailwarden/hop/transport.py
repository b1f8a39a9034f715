"""How abby reaches one guard: the interface of its transports, and the meaning of a guard's errors."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from mailwarden.errors import (
    AnalysisTimeout,
    CoreError,
    EngineUnavailable,
    Forbidden,
    MailwardenError,
    Overloaded,
    ScanningDisabled,
    ShuttingDown,
    UnsupportedMediaType,
)
from mailwarden.hop.records import AnalyzerDone, GuardStatus
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.settings.effective import Setting

DISABLED = "Scanning is disabled: no guard has scanSources.restApi in guard.yml. An operator has to enable it."
OTHER_VERSION = "A guard has a version that does not follow abby's. Upgrade step by step: docs/operating.md."
REJECTED = "A guard rejects abby's certificate. Add a name of it to tls.clientNames in guard.yml."

# Errors of guards, the most informative for the caller first.
REFUSALS: Mapping[str, type[MailwardenError]] = {
    error.code: error for error in (Overloaded, EngineUnavailable, ScanningDisabled, ShuttingDown)
}


class Refused(Exception):
    """The guard rejected the message before it accepted it."""

    def __init__(self, error: MailwardenError) -> None:
        super().__init__(error.code)
        self.error = error


class Died(Exception):
    """The guard accepted the message, or may have, and gave no usable answer."""

    def __init__(self, error: MailwardenError, kind: str) -> None:
        super().__init__(kind)
        self.error = error
        self.kind = kind


class NoStatus(Exception):
    """The guard did not answer a call for its status."""


class StatusAnswer(Struct, frozen=True):
    """A guard's status, or none, and whether the guard rejects abby's certificate."""

    status: GuardStatus | None
    rejects_us: bool = False


class Progress(Protocol):
    """A watched analysis that has begun."""

    async def next(self) -> AnalyzerDone | FinishedRequest:
        """Return the next step, the finished request last; raise the guard's error."""
        ...


class Transport(Protocol):
    """Reaches one guard. A rejection raises Refused, a failure Died, an analysis out of time AnalysisTimeout."""

    async def submit(self, scan: Scan, traceparent: str) -> bytes:
        """Return the body of the answer, which is the public result."""
        ...

    def watch(self, scan: Scan) -> AbstractAsyncContextManager[Progress]:
        """Begin a watched analysis; its first step has arrived when the block begins."""
        ...

    async def status(self) -> StatusAnswer:
        """Return the status, or raise NoStatus."""
        ...

    async def settings(self) -> Sequence[Setting]:
        """Return the running configuration, empty if the guard does not answer."""
        ...


def error_in(status: int, code: str, retry_after: int | None = None) -> Exception:
    """Return what a guard's error means to abby."""
    if status == 503 and code in REFUSALS:
        sentence = DISABLED if code == ScanningDisabled.code else "The guards refused the message for now; try again."
        return Refused(REFUSALS[code](sentence, retry_after=retry_after))
    if status == 403 and code == Forbidden.code:
        return Refused(CoreError(REJECTED))
    if code == UnsupportedMediaType.code:
        return Refused(CoreError(OTHER_VERSION))
    if status == 504 and code == AnalysisTimeout.code:
        return AnalysisTimeout("The analysis was not finished in time.")
    return Died(malformed_answer(), f"status {status} {code}"[:60])


def late_error(code: str, message: str, retry_after: int | None) -> MailwardenError:
    """Return the error that ended a watched analysis after its first step; no other guard is asked."""
    if code == AnalysisTimeout.code:
        return AnalysisTimeout("The analysis was not finished in time.")
    if code in REFUSALS:
        return REFUSALS[code](message, retry_after=retry_after)
    return CoreError("The guard could not finish the analysis; its log has it by this request id.")


def malformed_answer() -> CoreError:
    return CoreError("A guard answered what no guard should; try again.")
