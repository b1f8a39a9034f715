"""Prepares a finished guard request for its page: the summary, the facts, the rules, and the evidence.

Pure: everything on the page comes from the record and from the policy.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from mailwarden.analysis.links.hosts import misleading
from mailwarden.console.language import _
from mailwarden.console.message_status import would_have_been
from mailwarden.console.policy_texts import change_in_language, request_in_language
from mailwarden.history.explanation import explanation_of
from mailwarden.lists.catalogue import MatchOn, block_and_allow
from mailwarden.lists.kinds.domains import with_subdomains
from mailwarden.model.evidence import Finding, Report
from mailwarden.model.listing import ListHit
from mailwarden.model.outcome import Decision, Reason, Verdict
from mailwarden.model.record import FinishedRequest, LinkSummary, PartSummary
from mailwarden.policy.counterfactual import Counterfactual, what_would_change
from mailwarden.policy.facts import Explanation, explain
from mailwarden.policy.rules import CONVICTION, SUSPICION, Policy

_CHECKS = (("SPF", "spf-"), ("DKIM", "dkim-"), ("DMARC", "dmarc-"))
_BODIES = ("text/plain", "text/html")


class Points(Struct, frozen=True):
    """The points of one verdict; the verdict applies from `line` points."""

    verdict: str
    points: int
    line: int

    @property
    def shown(self) -> int:
        return max(0, min(self.points, self.line))


class Check(Struct, frozen=True):
    """The result of one sender check."""

    name: str
    result: str
    domain: str
    sentence: str


class ShownLink(Struct, frozen=True):
    link: LinkSummary
    shown_host: str = ""  # the host in the link's text, if it differs from the target's


class ListCandidate(Struct, frozen=True):
    """A value of the message that a list can contain, with the lists that block and allow it."""

    label: str
    entry: str  # one entry, or several on lines of their own
    value: MatchOn

    @property
    def block(self) -> str:
        return block_and_allow(self.value)[0]

    @property
    def allow(self) -> str:
        return block_and_allow(self.value)[1]

    @property
    def key(self) -> str:
        """The name of the value in a form: the list and the first entry."""
        return f"{self.block}:{self.entry.splitlines()[0]}"


class MessageView(Struct, frozen=True):
    request: FinishedRequest
    sentence: str
    would: Decision | None  # the decision of `balanced` for a tenant in `monitor`, if it differs
    explanation: Explanation
    rules: tuple[Reason, ...]  # every rule that matched
    points: tuple[Points, ...]
    change: Counterfactual
    checks: tuple[Check, ...]
    links: tuple[ShownLink, ...]
    attachments: tuple[PartSummary, ...]
    bodies: tuple[PartSummary, ...]
    hits: tuple[ListHit, ...]
    unused_findings: tuple[tuple[str, Finding], ...]  # findings that no rule uses
    candidates: tuple[ListCandidate, ...]
    longest: float  # milliseconds of the slowest analyzer
    took: float  # milliseconds of the whole scan
    json: str


def view_of(request: FinishedRequest, policy: Policy) -> MessageView:
    summary = request.summary
    links = tuple(map(_shown, summary.links))
    attachments = attachments_of(request)
    told = request_in_language(request, policy)
    return MessageView(
        request=request,
        sentence=sentence_of(told),
        would=would_have_been(request, policy),
        explanation=explain(told.judgement, policy),
        rules=told.judgement.reasons,
        points=tuple(_points_of(request.judgement.points)),
        change=change_in_language(what_would_change(request, policy), request, policy),
        checks=tuple(checks_of(told)),
        links=links,
        attachments=attachments,
        bodies=tuple(part for part in summary.parts if part not in attachments),
        hits=request.listing.acting,
        unused_findings=tuple(_unused_findings(request, policy)),
        candidates=tuple(candidates_of(request, links, attachments)),
        longest=max((report.milliseconds for report in request.evidence.reports), default=0.0),
        took=(request.completed - request.created).total_seconds() * 1000,
        json=msgspec.json.format(msgspec.json.encode(explanation_of(request, policy)), indent=2).decode(),
    )


def sentence_of(request: FinishedRequest) -> str:
    """Return the verdict and the list entry that decided as one text."""
    entry, summary = request.ruling.entry, request.judgement.summary
    if entry is None:
        return summary
    values = {"summary": summary, "entry": entry.entry, "list": entry.list_name}
    if entry.tenant:
        return _("%(summary)s The entry %(entry)s in %(list)s of the tenant decides.") % values
    return _("%(summary)s The entry %(entry)s in %(list)s of the deployment decides.") % values


def checks_of(request: FinishedRequest) -> Iterator[Check]:
    """Yield the results of SPF, DKIM and DMARC, and whether From is aligned."""
    report = _report(request, "authentication")
    findings = report.findings if report else ()
    summaries = {reason.rule: reason.summary for reason in request.judgement.reasons}
    for name, prefix in _CHECKS:
        for finding in findings:
            result = finding.name.removeprefix("authentication.")
            if result.startswith(prefix):
                domain = str(finding.facts.get("domain", ""))
                yield Check(name, result.removeprefix(prefix), domain, summaries.get(finding.name, ""))
    for finding in findings:
        result = finding.name.removeprefix("authentication.")
        if result in ("aligned", "unaligned", "duplicate-from"):
            yield Check("From", result, str(finding.facts.get("domain", "")), summaries.get(finding.name, ""))


def attachments_of(request: FinishedRequest) -> tuple[PartSummary, ...]:
    return tuple(part for part in request.summary.parts if part.name or part.media_type not in _BODIES)


def candidates_of_request(request: FinishedRequest) -> tuple[ListCandidate, ...]:
    """Return the values of a message that lists can contain."""
    return tuple(candidates_of(request, tuple(map(_shown, request.summary.links)), attachments_of(request)))


def candidates_of(
    request: FinishedRequest, links: Sequence[ShownLink], attachments: Sequence[PartSummary]
) -> Iterator[ListCandidate]:
    """Yield values that a user may want to allow or block, at most five of a kind."""
    sender = request.summary.from_address or request.envelope.sender
    if "@" in sender:
        yield ListCandidate(_("Sender"), sender, MatchOn.SENDER)
        domain = sender.rpartition("@")[2]
        yield ListCandidate(_("Domain and its subdomains"), "\n".join(with_subdomains(domain)), MatchOn.SENDER)
    if request.envelope.remote_address:
        yield ListCandidate(_("Sending IP"), request.envelope.remote_address, MatchOn.CLIENT_IP)
    misleading_first = sorted(links, key=lambda shown: not shown.shown_host)
    hosts = dict.fromkeys(shown.link.host for shown in misleading_first if shown.link.host)
    for host in [*hosts][:5]:
        yield ListCandidate(_("Links to"), host, MatchOn.URL)
    for part in attachments[:5]:
        name = part.name or part.media_type
        yield ListCandidate(_("File %(name)s") % {"name": name}, part.sha256, MatchOn.FILE)


def _shown(link: LinkSummary) -> ShownLink:
    found = misleading(link.target, link.text)
    return ShownLink(link, found[0] if found else "")


def _points_of(points: Mapping[str, int]) -> Iterator[Points]:
    for verdict in Verdict:
        if points.get(verdict):
            yield Points(verdict, points[verdict], SUSPICION if verdict is Verdict.SUSPICIOUS else CONVICTION)


def _unused_findings(request: FinishedRequest, policy: Policy) -> Iterator[tuple[str, Finding]]:
    known = {need for rule in policy.rules for need in rule.needs}
    return ((analyzer, finding) for analyzer, finding in request.evidence.findings if finding.name not in known)


def _report(request: FinishedRequest, analyzer: str) -> Report | None:
    return next((report for report in request.evidence.reports if report.analyzer == analyzer), None)
