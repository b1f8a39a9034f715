"""What an analyzer is, and what it is given.

There are three kinds, told apart by where they may run:
- a *local* analyzer looks at the parsed message. It is plain code on hostile bytes, so it runs in a worker
  process that is killed at the deadline;
- an *engine* analyzer asks an outside program about the raw bytes;
- a *concluding* analyzer reasons about what the others brought back, without touching the bytes.
An analyzer yields findings and nothing else: weights, tags and sentences are data in `policy/rules`.
"""

from collections.abc import Iterable
from typing import ClassVar, Protocol

from msgspec import Struct

from mailwarden.analysis.view import View
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Finding
from mailwarden.model.summary import MessageSummary


class RawMessage(Protocol):
    """The bytes of one message, in memory or in a spool file."""

    @property
    def size(self) -> int: ...

    def open_to_read(self) -> int | None:
        """Return a new read-only file descriptor of a message that is not in memory, or None; the caller closes it."""

    def chunks(self, size: int = 262_144) -> Iterable[bytes]: ...


class EngineAnswer(Struct, frozen=True):
    """What an engine said, already in our words; `symbols` is for concluding analyzers alone.

    `unfinished` says in a sentence what the engine could not do; the analysis is then incomplete, whatever it found.
    """

    findings: tuple[Finding, ...]
    engine: str = ""
    symbols: dict[str, tuple[str, ...]] = {}
    unfinished: str = ""


class Known(Struct, frozen=True):
    """What a concluding analyzer knows: the envelope, the summary and what the engines said."""

    envelope: Envelope
    summary: MessageSummary
    answers: dict[str, EngineAnswer]
    ambiguous_sender: bool = False  # no authentication result applies


class LocalAnalyzer(Protocol):
    name: ClassVar[str]

    def examine(self, view: View) -> Iterable[Finding]: ...


class EngineFailed(Exception):
    """An engine could not finish: `sentence` says why, in words for people."""

    def __init__(self, kind: FailureKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.sentence = sentence


class EngineAnalyzer(Protocol):
    name: ClassVar[str]
    bears_any_structure: ClassVar[bool]  # False: not asked about a message that trips a structure limit
    learns: ClassVar[bool]  # True: what it says may depend on what a tenant taught it
    reads_contents: ClassVar[bool]  # True: asked about the decoded parts too, where the message is ambiguous
    unpacks: ClassVar[bool]  # True: opens archives and pictures, which may take long for few bytes

    @property
    def timeout(self) -> float:
        """Return the longest wait for one answer, in seconds."""

    async def examine(self, raw: RawMessage, envelope: Envelope, learner: str = "") -> EngineAnswer:
        """Ask the engine; raise EngineFailed where it cannot finish. The caller holds the deadline.

        An engine that learns goes by what it learned for the learner; without one by nothing that was learned.
        """

    async def check(self) -> str:
        """Return the engine's name and version, or raise EngineFailed where it does not answer."""


class ConcludingAnalyzer(Protocol):
    name: ClassVar[str]

    def conclude(self, known: Known) -> Iterable[Finding]: ...
