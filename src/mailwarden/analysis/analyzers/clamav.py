"""Asks clamd about the raw message, so that it sees every byte whatever our parsers made of it."""

import struct
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed, RawMessage
from mailwarden.analysis.engine import EngineDoor
from mailwarden.message.limits import SHOWN
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Finding

MAX_ANSWER = 65_536  # not inspection: an engine's own answer

LIMITS_EXCEEDED = "clamav.limits-exceeded"

# clamd reports what it could not look into by the same word as malware; the name tells them apart.
_HEURISTICS = (
    ("Heuristics.Limits.Exceeded", LIMITS_EXCEEDED),
    ("Heuristics.Encrypted", "clamav.encrypted"),
    ("Heuristics.OLE2.ContainsMacros", "clamav.macro"),
    ("Heuristics.Broken", "clamav.broken-executable"),
    ("Heuristics.Phishing", "clamav.phishing"),
)


class ClamavAnalyzer:
    name: ClassVar[str] = "clamav"
    bears_any_structure: ClassVar[bool] = True
    learns: ClassVar[bool] = False
    reads_contents: ClassVar[bool] = True
    unpacks: ClassVar[bool] = True

    def __init__(self, address: str, timeout: float, max_concurrency: int) -> None:
        self.timeout = timeout
        self._door = EngineDoor("ClamAV", address, max_concurrency)
        self._version = ""

    async def examine(self, raw: RawMessage, envelope: Envelope, learner: str = "") -> EngineAnswer:
        answer = await self._door.ask(stream_of(raw), MAX_ANSWER)
        findings = tuple(read_answer(answer))
        return EngineAnswer(findings, self._version or "clamd", unfinished=" ".join(map(unfinished, findings)).strip())

    async def check(self) -> str:
        """Return clamd's version with the age of its signatures, as `VERSION` tells it."""
        answer = await self._door.probe(b"zVERSION\0")
        version = answer.rstrip(b"\0\r\n").decode("latin-1")
        if not version.startswith("ClamAV"):
            raise EngineFailed(FailureKind.UNFINISHED, f"clamd did not tell its version but {version[:60]!r}.")
        self._version = version.split("/")[0]
        return version


def unfinished(finding: Finding) -> str:
    """Return a sentence if ClamAV stopped at one of its limits: what lies behind it was not scanned."""
    if finding.name != LIMITS_EXCEEDED:
        return ""
    return f"ClamAV stopped at one of its own limits ({finding.facts['signature']}) and did not scan the rest."


def stream_of(raw: RawMessage) -> Iterator[bytes]:
    """Yield the message in clamd's INSTREAM form: each piece with its length before it, an empty one last."""
    yield b"zINSTREAM\0"
    for piece in filter(None, raw.chunks()):  # an empty piece would end the stream early
        yield struct.pack(">I", len(piece))
        yield piece
    yield struct.pack(">I", 0)


def read_answer(answer: bytes) -> Iterator[Finding]:
    """Turn `stream: OK` or `stream: NAME FOUND` into findings; anything else is no result."""
    text = answer.rstrip(b"\0\r\n").decode("latin-1")
    body = text.removeprefix("stream: ")
    if text == "stream: OK":
        return
    if body == text or not body.endswith(" FOUND"):
        raise EngineFailed(
            FailureKind.UNFINISHED, f"clamd could not scan the message: {body[: SHOWN.fact] or 'no answer'}."
        )
    signature = body.removesuffix(" FOUND")[: SHOWN.fact]
    name = next((finding for prefix, finding in _HEURISTICS if signature.startswith(prefix)), "clamav.malware")
    yield Finding(name, facts={"signature": signature})
