"""Reports whether SPF, DKIM and DMARC authenticate the sender domain in From.

An engine does the checks; this analyzer works out alignment itself. A sender counts as authenticated only if SPF or
DKIM passed for the organisation in From (RFC 7489, section 3.1), and the engine read the same From and the same
envelope sender as our own parser. A DMARC failure excludes authentication: `Standing` is one or the other.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from mailwarden.analysis.analyzer import Known, SenderChecks
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import normalize_host, written_domain
from mailwarden.model.envelope import Envelope, domain_of
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Finding
from mailwarden.model.place import area

DMARC_FAILURES = frozenset({"dmarc-reject", "dmarc-quarantine", "dmarc-softfail"})


class AuthenticationAnalyzer:
    name: ClassVar[str] = "authentication"

    def conclude(self, known: Known) -> Iterator[Finding]:
        checks = known.authentication
        if checks is None:
            return
        seen = domain_of(known.summary.from_address)
        if checks.several_senders:
            yield _finding("duplicate-from", domain=seen)
        doubt = "" if known.ambiguous_sender else read_otherwise(known, checks)
        if doubt:
            yield Finding(AMBIGUOUS_SENDER, area("From"), {"sentence": doubt})
        if doubt or known.ambiguous_sender:
            yield _finding("unaligned", domain=seen)
            return
        yield from _results(known, checks, seen)


def _results(known: Known, checks: SenderChecks, seen: str) -> Iterator[Finding]:
    if checks.spf:
        yield _finding(f"spf-{checks.spf}", domain=spf_domain(known.envelope))
    for result, domains in checks.dkim:
        yield _finding(f"dkim-{result}", domain=", ".join(domains))
    standing = standing_of(known.envelope, seen, checks)
    if standing.dmarc in DMARC_FAILURES and known.envelope.remote_address is None:
        yield _finding("dmarc-unverified", domain=seen)  # SPF was never asked, so the failure proves nothing
    elif standing.dmarc:
        yield _finding(standing.dmarc, domain=seen)
    yield _finding("aligned", domain=seen, by=standing.by) if standing.by else _finding("unaligned", domain=seen)


class Standing(Struct, frozen=True):
    """The DMARC result of the domain in From, and the check that authenticates it, or ""."""

    dmarc: str
    by: str = ""

    def __post_init__(self) -> None:
        if self.by and self.dmarc in DMARC_FAILURES:
            raise ValueError("A sender that fails DMARC is not authenticated.")


def standing_of(envelope: Envelope, seen: str, checks: SenderChecks) -> Standing:
    """Return the standing of the domain in From; a DMARC failure, as of strict alignment, is not authenticated."""
    dmarc = f"dmarc-{checks.dmarc}" if checks.dmarc else ""
    # Without the policy it is not known whether alignment is strict.
    if dmarc in DMARC_FAILURES or checks.policy_unknown:
        return Standing(dmarc)
    return Standing(dmarc, authenticated_by(envelope, seen, checks))


def read_otherwise(known: Known, checks: SenderChecks) -> str:
    """Return where the engine read another sender than we do, "" where it read the same or does not say."""
    seen, envelope = domain_of(known.summary.from_address), domain_of(known.envelope.sender)
    checked = checks.dmarc_domain
    # It may be the organizational domain, by another public suffix list: a parent domain is the same domain.
    is_parent = f".{normalize_host(seen)}".endswith(f".{normalize_host(checked)}")
    if checked and not is_parent and written_domain(checked) != written_domain(seen):
        return "the check of DMARC and the reader see different domains in the From field"
    if seen and checks.from_missing:
        return "the check of DMARC sees no From field"
    if checks.read_as is not None:
        read_from, read_envelope = map(domain_of, checks.read_as)
        if seen and written_domain(read_from) != written_domain(seen):
            return "the engine and the reader see different domains in the From field"
        if written_domain(read_envelope) != written_domain(envelope):
            return "the engine and the reader see different domains in the envelope sender"
    if checks.read_as_equal and envelope and written_domain(envelope) != written_domain(seen):
        return "the engine takes the From field and the envelope sender for the same address"
    return ""


def authenticated_by(envelope: Envelope, seen: str, checks: SenderChecks) -> str:
    """Return what authenticates the domain in From, or "" where nothing does."""
    organisation = written_domain(seen)
    if not organisation or checks.several_senders:
        return ""
    if any(written_domain(domain) == organisation for domain in checks.signed_by):
        return "DKIM"
    if checks.spf == "pass" and written_domain(spf_domain(envelope)) == organisation:
        return "SPF"
    return ""


def spf_domain(envelope: Envelope) -> str:
    """Return the domain that SPF was asked about: the sender's, or the HELO name for the null sender."""
    return domain_of(envelope.sender) if envelope.sender else (envelope.helo or "").lower()


def _finding(result: str, **facts: str) -> Finding:
    return Finding(f"authentication.{result}", facts={name: text[: SHOWN.fact] for name, text in facts.items() if text})
