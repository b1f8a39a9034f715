"""ClamAV: clamd scans the raw message, so that it sees every byte even if our parsers do not."""

import re
import struct
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Annotated, ClassVar

from msgspec import Meta

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed
from mailwarden.engines import samples
from mailwarden.engines.engine import (
    Announce,
    Diagnosis,
    EngineInfo,
    EngineSettings,
    ShippedFiles,
    SocketEngine,
    SocketSettings,
    closed_socket,
    within,
)
from mailwarden.message.limits import SHOWN
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Finding
from mailwarden.model.scan import RawMessage
from mailwarden.serving.spool import Spooled
from mailwarden.settings.shared import Count, Milliseconds

NAME = "clamav"
MAX_ANSWER = 65_536  # not inspection: an engine's own answer
OLD_SIGNATURES_DAYS = 7

LIMITS_EXCEEDED = "clamav.limits-exceeded"

# clamd reports what it could not look into by the same word as malware; the name of the signature differs.
_HEURISTICS = (
    ("Heuristics.Limits.Exceeded", LIMITS_EXCEEDED),
    ("Heuristics.Encrypted", "clamav.encrypted"),
    ("Heuristics.OLE2.ContainsMacros", "clamav.macro"),
    ("Heuristics.Broken", "clamav.damaged-executable"),
    ("Heuristics.Phishing", "clamav.phishing"),
)
# `ClamAV 1.4.3/27852/Sat Nov 14 09:35:12 2026`: the version, the number of the signatures, when those were made.
_WITH_SIGNATURES = re.compile(r"([^/]{1,60})/(\d{1,12})/(.{1,60})")
_THREADS = re.compile(r"THREADS: [^\n]{0,60}? max (\d{1,6})")


class ClamavSettings(SocketSettings, frozen=True, tag=NAME):
    """clamd, which finds malware in files."""

    address: Annotated[str, Meta(description="clamd: `unix:/path/to/socket` or `tcp:host:port`.")] = (
        "tcp:127.0.0.1:3310"
    )
    timeout: Annotated[Milliseconds, Meta(description="Longest wait for one answer, in milliseconds.")] = 60_000
    max_concurrency: Annotated[Count, Meta(description="Scans at once; clamd's MaxThreads or less.")] = 16


class ClamavEngine(SocketEngine[ClamavSettings]):
    type_name: ClassVar[str] = NAME
    title: ClassVar[str] = "ClamAV"
    settings_type: ClassVar[type[EngineSettings]] = ClamavSettings
    shipped_address: ClassVar[str] = "unix:/run/clamav/clamd.ctl"
    shipped_files: ClassVar[ShippedFiles | None] = ShippedFiles(
        "clamav",
        "etc/clamav",
        (
            ("clamav", "etc/clamav"),
            ("clamav/clamav-daemon.service.d", "etc/systemd/system/clamav-daemon.service.d"),
        ),
        "clamav-daemon",
    )
    convicts_files: ClassVar[bool] = True
    reads_contents: ClassVar[bool] = True
    unpacks: ClassVar[bool] = True
    accepts_malformed: ClassVar[bool] = True

    def __init__(self, name: str, settings: ClamavSettings) -> None:
        super().__init__(name, settings)
        self._version = ""

    async def ask(self, raw: RawMessage, envelope: Envelope, classifier: str = "") -> EngineAnswer:
        answer = await self._connection.ask(stream_of(raw), MAX_ANSWER)
        findings = tuple(read_answer(answer))
        return EngineAnswer(findings, self._version or "clamd", unfinished=" ".join(map(unfinished, findings)).strip())

    async def check(self) -> EngineInfo:
        """Return clamd's version with the age of its signatures, as `VERSION` reports it."""
        answer = await self._connection.probe(b"zVERSION\0")
        version = answer.rstrip(b"\0\r\n").decode("latin-1")
        if not version.startswith("ClamAV"):
            raise EngineFailed(FailureKind.UNFINISHED, f"clamd did not report its version but {version[:60]!r}.")
        self._version = version.split("/")[0]
        return read_version(version)

    async def diagnose(self, announce: Announce) -> AsyncIterator[Diagnosis]:
        """Send test files to clamd, and name each setting with which it would pass something over."""
        remedy = "set LocalSocketMode or LocalSocketGroup in clamd.conf"
        if refused := closed_socket(self.name, self._settings.address, remedy):
            yield refused
            return
        try:
            if await self._ask(b"zPING\0") != "PONG":
                return  # check() reports it
            wrong = [line async for line in self._wrong_settings(announce)]
        except EngineFailed:
            return
        for line in wrong:
            yield line
        if not wrong:
            seen = "finds EICAR in 50 MiB, reports encrypted, damaged and too deep files"
            yield Diagnosis(True, f"{self.name} settings", seen)

    async def _wrong_settings(self, announce: Announce) -> AsyncIterator[Diagnosis]:
        name, signatures = f"{self.name} settings", f"{self.name} signatures"
        found = await self._scan(samples.message_with("test.com", samples.EICAR))
        if not found:
            yield Diagnosis(False, signatures, "clamd does not find EICAR", "run `freshclam`, then restart clamd")
        if age := age_of_signatures(await self._ask(b"zVERSION\0")):
            yield Diagnosis(False, signatures, f"{age} days old", "start clamav-freshclam, or run `freshclam`")
        announce("clamd reads a message of 50 MiB")
        try:
            large = await self._scan(samples.message_with("test.com", samples.EICAR, samples.MAX_MESSAGE))
        except EngineFailed:
            large = "size limit"
        if "size limit" in large:
            yield Diagnosis(False, name, "clamd refuses a message of 50 MiB", "set `StreamMaxLength 60M` in clamd.conf")
        elif "Limits.Exceeded" in large or (found and not large):
            seen = "clamd does not read a message of 50 MiB to its end"
            seen += f" ({large})" if large else ", and reports OK"
            yield Diagnosis(False, name, seen, "set `MaxFileSize 60M` and `MaxScanSize 400M` in clamd.conf")
        alerts = (
            ("AlertExceedsMax", "archives.zip", samples.deep_archive(), "archives that are too deep for it"),
            ("AlertEncrypted", "secret.zip", samples.encrypted_archive(), "an encrypted archive"),
            ("AlertBrokenExecutables", "damaged.exe", samples.broken_program(), "a damaged program"),
        )
        for setting, file, content, what in alerts:
            if not await self._scan(samples.message_with(file, content)):
                yield Diagnosis(False, name, f"clamd reports OK for {what}", f"set `{setting} yes` in clamd.conf")
        threads, wanted = _THREADS.search(await self._ask(b"zSTATS\0")), self._settings.max_concurrency
        if threads and int(threads[1]) < wanted:
            seen = f"clamd has {threads[1]} threads, and guard asks {wanted} times at once"
            fix = f"set `MaxThreads {wanted}` in clamd.conf, or engines.{self.name}.maxConcurrency in guard.yml"
            yield Diagnosis(False, name, seen, fix)

    async def _ask(self, command: bytes) -> str:
        answer = await within(self.timeout, self._connection.probe(command))
        return answer.rstrip(b"\0").decode("utf-8", "replace").strip()

    async def _scan(self, content: bytes) -> str:
        """Return what clamd found, its error, or "" where it says OK."""
        answer = await within(self.timeout, self._connection.ask(stream_of(Spooled.of(content)), MAX_ANSWER))
        text = answer.rstrip(b"\0").decode("utf-8", "replace").strip()
        return "" if text == "stream: OK" else text.removeprefix("stream: ")


def read_version(version: str) -> EngineInfo:
    """Read the answer to `VERSION`, with or without signatures."""
    match = _WITH_SIGNATURES.fullmatch(version)
    if match is None:
        return EngineInfo(version, version)
    return EngineInfo(version, match[1], match[2], moment_of(match[3]))


def moment_of(text: str) -> datetime | None:
    """Read clamd's date; it names no time zone, and writes the time of its machine, which is taken for UTC."""
    try:
        return datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return None


def age_of_signatures(version: str) -> int:
    """Return how many days old the signatures are where that is too old, else 0; without a date nothing is known."""
    made = read_version(version).signatures_made
    days = (datetime.now(UTC) - made).days if made else 0
    return days if days > OLD_SIGNATURES_DAYS else 0


def unfinished(finding: Finding) -> str:
    """Return a sentence if ClamAV stopped at one of its limits and left the rest unscanned."""
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
