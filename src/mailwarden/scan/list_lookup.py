"""Looks a message up in the lists: the observables to collect, the matching entries, and the effect of allowed files.

Unavailable lists are a failure: without them no message is clean.

Security: the rescan of allowed files lifts the malware floor, so every doubt keeps it: an ambiguous message, a missed
part, an engine that does not answer, a finding in the rest, or an allowed file without the finding.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.engines.engine import AnyEngine, EngineSettings, ScanEngine
from mailwarden.errors import Overloaded, StorageUnavailable
from mailwarden.lists.lookup import EVERYTHING, ActingLists, Shown
from mailwarden.model.envelope import Envelope, domain_of
from mailwarden.model.evidence import UNVERIFIED_SENDER, Evidence, Finding
from mailwarden.model.listing import Listing
from mailwarden.model.observables import Observable, Observables
from mailwarden.model.scan import RawMessage
from mailwarden.pipeline.collector import Collected
from mailwarden.pipeline.examination import Examination
from mailwarden.pipeline.worker_pool import WorkerFailed, WorkerPool
from mailwarden.policy.list_effects import failed_report, report_of, without_allowed_files, without_allowed_links
from mailwarden.serving.spool import Spooled

# An engine finds more in a text as a mail than as a file, so it gets both.
_AS_MAIL = b"MIME-Version: 1.0\r\nContent-Type: text/plain\r\nSubject: rest\r\n\r\n"


class AllowlistRescan:
    """Rescans a message without its allowed files: are they alone the reason why an engine convicted it?"""

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
                kept, others = contents
                for engine in self._engines:
                    reported = frozenset(_named(f) for name, f in evidence.findings if name == engine.name)
                    if await _names(engine, envelope, others) or not reported <= await _names(engine, envelope, kept):
                        return False
        except (EngineFailed, WorkerFailed, Overloaded, TimeoutError):
            return False
        return True

    async def _contents(self, raw: RawMessage, allowed: frozenset[str]) -> tuple[list[bytes], list[bytes]] | None:
        """Return the parts that are allowed and the others, or None if some may be missing."""
        examination = Examination((Observable.CONTENTS,))
        await self._workers.run(raw, examination.take, examination.wanted)
        summary = examination.summary
        doubts = any(finding.name.startswith("structure.") for finding in _findings(examination))
        if summary is None or not examination.sound or doubts:
            return None
        digests = {sha256(content).hexdigest(): content for content in examination.contents}
        if any(part.size and part.sha256 not in digests for part in summary.parts):
            return None
        kept = [content for digest, content in digests.items() if digest in allowed]
        others = [content for digest, content in digests.items() if digest not in allowed]
        return kept, [*others, *(_AS_MAIL + content for content in others)]


def _findings(examination: Examination) -> Iterable[Finding]:
    return (finding for report in examination.reports.values() for finding in report.findings)


async def _names(engine: ScanEngine[EngineSettings], envelope: Envelope, contents: Iterable[bytes]) -> frozenset[str]:
    names: set[str] = set()
    for content in contents:
        answer = await engine.ask(Spooled.of(content), envelope)
        names.update(map(_named, answer.findings))
    return frozenset(names)


def _named(finding: Finding) -> str:
    return f"{finding.name} {finding.facts.get('signature', '')}"


class ListLookupResult(Struct, frozen=True):
    """One message, the matching list entries, and the evidence with them."""

    envelope: Envelope
    observables: Observables
    listing: Listing
    evidence: Evidence


class WithoutAllowedFiles(Struct, frozen=True):
    """The evidence without the findings of allowed files, and those files if the engines clear the rest."""

    evidence: Evidence
    cleared_files: frozenset[str]


class ListLookup:
    def __init__(self, lists: ActingLists, rescan: AllowlistRescan) -> None:
        self._lists = lists
        self._rescan = rescan

    async def prepare(self, tenants: Iterable[UUID]) -> tuple[Observable, ...]:
        """Return what the tenants' lists need to see of a message; all of it where they cannot be asked now."""
        needed: set[Observable] = set()
        try:
            for tenant in tenants:
                await self._lists.prepare(tenant)
                needed.update(self._lists.wanted(tenant))
        except StorageUnavailable:
            return EVERYTHING
        return tuple(observable for observable in Observable if observable in needed)

    def compare(
        self, tenant: UUID, envelope: Envelope, collected: Collected, needed: tuple[Observable, ...]
    ) -> ListLookupResult:
        """Return what the lists say, and the evidence with it; `needed` is what the message was looked through for."""
        started = time.perf_counter()
        observables = collected.observables
        try:
            shown = Shown(envelope, collected.summary, observables, frozenset(needed))
            listing = self._lists.look_up(tenant, shown, collected.evidence)
        except StorageUnavailable as error:
            report = failed_report(error.message, _milliseconds(started))
            return ListLookupResult(envelope, observables, Listing(), Evidence((*collected.evidence.reports, report)))
        domain = domain_of(collected.summary.from_address)
        if domain and collected.evidence.has(UNVERIFIED_SENDER) and self._lists.protects(tenant, domain):
            listing = replace(listing, protected_sender=domain)
        reports = without_allowed_links(collected.evidence, listing, observables).reports
        evidence = Evidence((*reports, report_of(listing, _milliseconds(started))))
        return ListLookupResult(envelope, observables, listing, evidence)

    def count(self, compared: ListLookupResult) -> None:
        """Count the entries that took effect, so that users see which entries are still of use."""
        self._lists.count(compared.listing)

    async def without_allowed_files(
        self, raw: RawMessage, compared: ListLookupResult, deadline: float
    ) -> WithoutAllowedFiles | None:
        """Return the evidence without the findings of allowed files, or None if no file is allowed.

        An engine's findings are removed only if it reports the same for those files and clears the rest.
        """
        allowed, evidence = compared.listing.allowed_files, compared.evidence
        if not allowed:
            return None
        accused = any(report.convicts_files and report.findings for report in evidence.reports)
        clear = accused and await self._rescan.clears(raw, compared.envelope, evidence, allowed, deadline)
        remaining = without_allowed_files(evidence, compared.listing, compared.observables.files, engines_clear=clear)
        return WithoutAllowedFiles(remaining, allowed if clear else frozenset())


def _milliseconds(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
