"""Evidence: the findings of the analyzers about one message, and their failures."""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from mailwarden.model.place import WHOLE_MESSAGE, Place

Fact = str | int | float | bool

# Parsers may read different senders: no authentication result and no allow entry applies.
AMBIGUOUS_SENDER = "structure.ambiguous-sender"
# The DNS records that would authenticate the sender cannot be looked up.
UNVERIFIED_SENDER = "dns.unverified-sender"


class Finding(Struct, frozen=True, omit_defaults=True):
    """One finding of an analyzer: its name (`analyzer.what`), its place in the message, and facts to show."""

    name: str
    place: Place = WHOLE_MESSAGE
    facts: dict[str, Fact] = {}


class Omitted(Struct, frozen=True):
    """An analyzer omitted findings of this name because there are many; with a place, only findings there."""

    name: str
    place: Place = WHOLE_MESSAGE


class FailureKind(StrEnum):
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    UNREACHABLE = "unreachable"
    UNFINISHED = "unfinished"


class Failure(Struct, frozen=True):
    """The reason why an analyzer did not finish, as a sentence."""

    analyzer: str
    kind: FailureKind
    sentence: str


class Status(StrEnum):
    FINISHED = "finished"
    FAILED = "failed"
    SKIPPED = "skipped"


class Report(Struct, frozen=True, omit_defaults=True):
    """The result of one analyzer for one message."""

    analyzer: str
    required: bool
    status: Status
    milliseconds: float
    findings: tuple[Finding, ...] = ()
    failure: Failure | None = None
    engine: str = ""  # the engine and its version, if the analyzer calls one
    convicts_files: bool = False  # the engine's findings are about files, and it can scan a single file
    omitted: tuple[Omitted, ...] = ()


class Evidence(Struct, frozen=True):
    reports: tuple[Report, ...]

    @property
    def findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield every finding with the name of its analyzer, in the analyzers' order."""
        for report in self.reports:
            for finding in report.findings:
                yield report.analyzer, finding

    def has(self, name: str) -> bool:
        return any(finding.name == name for _, finding in self.findings)

    @property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(report.failure for report in self.reports if report.failure)
