"""The contract of analyzers and their input.

Three kinds of analyzers differ in where they run:
- a *local* analyzer reads the parsed message. It is plain code on hostile bytes, so it runs in a worker process that
  guard kills at the deadline;
- an *engine* is an external program that scans the raw bytes (`engines`);
- a *concluding* analyzer works on the results of the others and reads no hostile bytes.

An analyzer yields findings and nothing else: weights, tags and sentences are data in `policy/rules`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Protocol

from msgspec import Struct

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Finding, Omitted
from mailwarden.model.place import WHOLE_MESSAGE, Place
from mailwarden.model.record import MessageSummary

if TYPE_CHECKING:  # the readers of every file format; abby needs the engines' names alone
    from mailwarden.analysis.view import View

PER_KIND = 5  # findings of one name


class SenderChecks(Struct, frozen=True):
    """The results of SPF, DKIM and DMARC, and how the engine that checked them read the sender."""

    spf: str = ""  # pass, fail, softfail, neutral, error or none; "" without a result
    spf_checked: bool = False  # with the IP address of the client
    dkim: tuple[tuple[str, tuple[str, ...]], ...] = ()  # pass, fail, error or none, each with the signing domains
    signed_by: tuple[str, ...] = ()  # the domains whose signatures are valid
    dmarc: str = ""  # pass, reject, quarantine, softfail, error or none; "" without a result
    dmarc_domain: str = ""  # the domain whose policy was looked up
    policy_found: bool = False  # a DMARC record was found, valid or not
    policy_missing: bool = False  # no DMARC record was found, or the lookup failed
    temporary_error: bool = False  # a lookup of SPF, DKIM or DMARC failed for now
    policy_unknown: bool = False  # RFC 7489, section 6.6.2: the lookup of the DMARC record failed for now
    several_senders: bool = False  # From has more than one address, or there are two From fields
    from_missing: bool = False  # the engine saw no From field
    read_as: tuple[str, str] | None = None  # From and envelope sender as the engine read them, where they differ
    read_as_equal: bool = False  # the engine read the same address in both


class Statistics(Struct, frozen=True):
    """The probabilities that an engine computes from a tenant's reports, in percent."""

    threat: float = 0.0
    good: float = 0.0


class EngineAnswer(Struct, frozen=True):
    """The answer of an engine in neutral terms; `authentication` and `statistics` are for concluding analyzers.

    `unfinished` is a sentence about a part of the scan that the engine could not do; the analysis is then incomplete.
    """

    findings: tuple[Finding, ...]
    engine: str = ""
    authentication: SenderChecks | None = None
    statistics: Statistics | None = None
    unfinished: str = ""


class Known(Struct, frozen=True):
    """The input of a concluding analyzer: the envelope, the summary and the answers of the engines."""

    envelope: Envelope
    summary: MessageSummary
    answers: dict[str, EngineAnswer]
    ambiguous_sender: bool = False  # no authentication result applies

    @property
    def authentication(self) -> SenderChecks | None:
        """Return the checks of the engine that authenticates; the configuration allows one."""
        return next((answer.authentication for answer in self.answers.values() if answer.authentication), None)


class LocalAnalyzer(Protocol):
    name: ClassVar[str]

    def examine(self, view: "View") -> Iterable[Finding | Omitted]: ...


class EngineFailed(Exception):
    """An engine could not finish. `sentence` is the reason, for people of a tenant, too.

    `detail` is for operators: an address or a system error. str() has both.
    """

    def __init__(self, kind: FailureKind, sentence: str, detail: str = "") -> None:
        super().__init__(f"{sentence} {detail}".strip())
        self.kind = kind
        self.sentence = sentence


class ConcludingAnalyzer(Protocol):
    name: ClassVar[str]

    def conclude(self, known: Known) -> Iterable[Finding]: ...


def limit_each_kind(
    findings: Iterable[Finding], most: int = PER_KIND, place: Place = WHOLE_MESSAGE
) -> Iterator[Finding | Omitted]:
    """Yield the first findings of each name, and `Omitted` for names with more.

    One limit for all names together would let harmless findings hide others. `place` is where all these findings are.
    """
    count: Counter[str] = Counter()
    for finding in findings:
        count[finding.name] += 1
        if count[finding.name] <= most:
            yield finding
        elif count[finding.name] == most + 1:
            yield Omitted(finding.name, place)
