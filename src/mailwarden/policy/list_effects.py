"""Adds the matching list entries to the evidence as a report, and removes findings about allowed links and files.

Security: senders choose the hosts that a finding names. A finding is removed only if all its hosts are allowed.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec.structs import replace

from mailwarden.lists.catalogue import CATALOGUE
from mailwarden.message.urls import host_of
from mailwarden.model.evidence import Evidence, Fact, Failure, FailureKind, Finding, Report, Status
from mailwarden.model.listing import ListHit, Listing
from mailwarden.model.observables import Observables, ObservedFile
from mailwarden.model.place import WHOLE_MESSAGE, PlaceKind, area

ANALYZER = "lists"
ENGINE = "replica"
PROTECTED_SENDER = f"{ANALYZER}.protected-sender"
MAX_FINDINGS_PER_LIST = 20  # findings per list, so that one list cannot displace the others
_FINDINGS = {definition.name: definition.finding for definition in CATALOGUE}
# Analyzers with one finding per file. YARA is not one of them: a rule that matches several files yields one finding.
_ABOUT_FILES = frozenset({"attachments", "html", "office", "pdf", "images", "shortcuts"})


def report_of(listing: Listing, milliseconds: float) -> Report:
    """Return the acting entries as findings of a report."""
    counts: Counter[str] = Counter()
    findings: list[Finding] = []
    for hit in listing.acting:
        counts[hit.list_name] += 1
        if counts[hit.list_name] <= MAX_FINDINGS_PER_LIST:
            findings.append(_finding_of(hit))
    if listing.protected_sender:
        findings.append(Finding(PROTECTED_SENDER, area("From"), {"domain": listing.protected_sender[:200]}))
    return Report(ANALYZER, True, Status.FINISHED, milliseconds, tuple(findings), None, ENGINE)


def finding_name(hit: ListHit) -> str:
    """Return the name of an entry's finding."""
    return f"{ANALYZER}.{_FINDINGS.get(hit.list_name, hit.list_name)}"


def failed_report(sentence: str, milliseconds: float) -> Report:
    """Return the report of a failed lookup; it is required, so the message is never clean."""
    failure = Failure(ANALYZER, FailureKind.UNREACHABLE, sentence)
    return Report(ANALYZER, True, Status.FAILED, milliseconds, (), failure, ENGINE)


def without_allowed_links(
    evidence: Evidence, listing: Listing, observables: Observables, *, all_pages: bool = True
) -> Evidence:
    """Return the evidence without the findings about links that a list allows.

    Without `all_pages` the observables lack pages of some hosts: findings about a whole host stay.
    """
    if not listing.allowed_urls:
        return evidence
    links = _Links(observables.urls, listing.allowed_urls, all_pages=all_pages)
    omitted = {(omission.name, omission.place) for report in evidence.reports for omission in report.omitted}

    def is_dropped(finding: Finding) -> bool:
        whole = omitted.isdisjoint({(finding.name, finding.place), (finding.name, WHOLE_MESSAGE)})
        return whole and links.allow(finding)

    return _without(evidence, is_dropped)


def without_allowed_files(
    evidence: Evidence, listing: Listing, files: Sequence[ObservedFile], *, engines_clear: bool
) -> Evidence:
    """Return the evidence without the findings about files that a list allows.

    An engine's findings about the whole message are removed only if the engine was called again without these files and
    found nothing.
    """
    kept = {file.place.part for file in files if file.sha256 not in listing.allowed_files}
    parts = {file.place.part for file in files} - kept
    full = [report for report in evidence.reports if _may_hide(report, parts)]
    reduced_evidence = _without(
        Evidence(tuple(r for r in evidence.reports if r not in full)), lambda f: _is_about(f, parts)
    )
    cleared = (replace(r, findings=()) if r.convicts_files and engines_clear else r for r in reduced_evidence.reports)
    return Evidence((*cleared, *full))


def _may_hide(report: Report, parts: Collection[str]) -> bool:
    """Return whether an analyzer omitted findings that may be about a file outside these parts."""
    return any(omission.place.part not in parts for omission in report.omitted)


def _is_about(finding: Finding, parts: Collection[str]) -> bool:
    """Return whether a finding is about one of these parts, or about a link or a QR code in it."""
    analyzer, place = finding.name.partition(".")[0], finding.place
    about_file = analyzer in _ABOUT_FILES or (analyzer == "urls" and place.kind is not PlaceKind.FILE)
    return about_file and place.part in parts and not place.inside


def _without(evidence: Evidence, is_dropped: Callable[[Finding], bool]) -> Evidence:
    return Evidence(
        tuple(
            replace(report, findings=tuple(f for f in report.findings if not is_dropped(f)))
            if report.findings
            else report
            for report in evidence.reports
        )
    )


def _finding_of(hit: ListHit) -> Finding:
    facts: dict[str, Fact] = {"list": hit.list_name, "entry": hit.entry[:200], "scope": hit.scope}
    facts["value"] = hit.value[:200]
    if hit.comment:
        facts["comment"] = hit.comment[:200]
    return Finding(finding_name(hit), hit.place, facts)


class _Hosts:
    """The hosts of some links, sorted from the top-level domain down, so that a lookup does not read all of them."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._reversed = sorted({f".{host_of(url)}"[::-1] for url in urls})

    def include(self, host: str) -> bool:
        """Return whether one of the links leads to this host or to a subdomain of it."""
        start = f".{host}"[::-1]
        at = bisect_left(self._reversed, start)
        return bool(host) and at < len(self._reversed) and self._reversed[at].startswith(start)


class _Links:
    """The links of a message: which lead where, and which of them a list allows."""

    def __init__(self, urls: Collection[str], allowed: Collection[str], *, all_pages: bool) -> None:
        self._allowed = allowed
        self._all_pages = all_pages
        self._all = _Hosts(urls)
        self._others = _Hosts(url for url in urls if url not in allowed)

    def allow(self, finding: Finding) -> bool:
        """Return whether a finding is about allowed links only."""
        url = finding.facts.get("url")
        if isinstance(url, str):
            # An analyzer reports one link of a host: the finding may be about every other link to it as well.
            return url in self._allowed and not self._others.include(host_of(url))
        hosts = finding.facts.get("hosts")  # all hosts of an engine's finding, separated by commas
        return self._all_pages and isinstance(hosts, str) and all(map(self._allow_host, hosts.split(", ")))

    def _allow_host(self, host: str) -> bool:
        return self._all.include(host) and not self._others.include(host)
