"""Looks a message up in the lists: the observables to collect, the matching entries, and the effect of allowed files.

Unavailable lists are a failure: without them no message is clean.
"""

import time
from collections.abc import Iterable
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.analysis.analyzer import RawMessage
from mailwarden.analysis.pipeline.allowlist_rescan import AllowlistRescan
from mailwarden.analysis.pipeline.collector import Collected
from mailwarden.errors import StorageUnavailable
from mailwarden.lists.lookup import EVERYTHING, ActingLists, Shown
from mailwarden.model.envelope import Envelope, domain_of
from mailwarden.model.evidence import UNVERIFIED_SENDER, Evidence
from mailwarden.model.listing import Listing
from mailwarden.model.observables import Observable, Observables
from mailwarden.policy.list_effects import failed_report, report_of, without_allowed_files, without_allowed_links


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
        wanted: set[Observable] = set()
        try:
            for tenant in tenants:
                await self._lists.prepare(tenant)
                wanted.update(self._lists.wanted(tenant))
        except StorageUnavailable:
            return EVERYTHING
        return tuple(observable for observable in Observable if observable in wanted)

    def compare(
        self, tenant: UUID, envelope: Envelope, collected: Collected, wanted: tuple[Observable, ...]
    ) -> ListLookupResult:
        """Return what the lists say, and the evidence with it; `wanted` is what the message was looked through for."""
        started = time.perf_counter()
        observables = collected.observables
        try:
            seen = Shown(envelope, collected.summary, observables, frozenset(wanted))
            listing = self._lists.look_up(tenant, seen, collected.evidence)
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
        rest = without_allowed_files(evidence, compared.listing, compared.observables.files, engines_clear=clear)
        return WithoutAllowedFiles(rest, allowed if clear else frozenset())


def _milliseconds(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
