"""Rescans a message without its allowlisted files: are they alone the reason why an engine convicted it?

Security: this lifts the malware floor, so every doubt keeps it: an ambiguous message, a missed part, an engine that
does not answer, a finding in the rest, or an allowed file without the finding.
"""

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import sha256

from mailwarden.analysis.analyzer import Content, EngineFailed, RawMessage
from mailwarden.analysis.engines.engine import AnyEngine, EngineSettings, ScanEngine
from mailwarden.analysis.pipeline.collector import Examination
from mailwarden.analysis.pipeline.worker_pool import WorkerFailed, WorkerPool
from mailwarden.errors import Overloaded
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Finding
from mailwarden.model.observables import Observable

# An engine finds more in a text as a mail than as a file, so it gets both.
_AS_MAIL = b"MIME-Version: 1.0\r\nContent-Type: text/plain\r\nSubject: rest\r\n\r\n"


class AllowlistRescan:
    def __init__(self, workers: WorkerPool, engines: Sequence[AnyEngine]) -> None:
        self._workers = workers
        scanning = (engine for engine in engines if isinstance(engine, ScanEngine))
        self._engines = tuple(engine for engine in scanning if engine.convicts_files)

    async def clears(
        self, raw: RawMessage, envelope: Envelope, evidence: Evidence, allowed: frozenset[str], deadline: float
    ) -> bool:
        """Return whether the engines find the same in the allowed files, and nothing in the rest."""
        try:
            async with asyncio.timeout(deadline):
                contents = await self._contents(raw, allowed)
                if contents is None:
                    return False
                kept, rest = contents
                for engine in self._engines:
                    said = frozenset(_named(f) for name, f in evidence.findings if name == engine.name)
                    if await _ask(engine, envelope, rest) or not said <= await _ask(engine, envelope, kept):
                        return False
        except (EngineFailed, WorkerFailed, Overloaded, TimeoutError):
            return False
        return True

    async def _contents(self, raw: RawMessage, allowed: frozenset[str]) -> tuple[list[bytes], list[bytes]] | None:
        """Return the parts that are allowed and the others, or None if some may be missing."""
        examination = Examination((Observable.CONTENTS,))
        await self._workers.examine(raw, examination.take, examination.wanted)
        summary = examination.summary
        doubts = any(finding.name.startswith("structure.") for finding in _findings(examination))
        if summary is None or not examination.sound or doubts:
            return None
        digests = {sha256(content).hexdigest(): content for content in examination.contents}
        if any(part.size and part.sha256 not in digests for part in summary.parts):
            return None
        kept = [content for digest, content in digests.items() if digest in allowed]
        rest = [content for digest, content in digests.items() if digest not in allowed]
        return kept, [*rest, *(_AS_MAIL + content for content in rest)]


def _findings(examination: Examination) -> Iterable[Finding]:
    return (finding for report in examination.reports.values() for finding in report.findings)


async def _ask(engine: ScanEngine[EngineSettings], envelope: Envelope, contents: Iterable[bytes]) -> frozenset[str]:
    found: set[str] = set()
    for content in contents:
        answer = await engine.examine(Content(content), envelope)
        found.update(map(_named, answer.findings))
    return frozenset(found)


def _named(finding: Finding) -> str:
    return f"{finding.name} {finding.facts.get('signature', '')}"
