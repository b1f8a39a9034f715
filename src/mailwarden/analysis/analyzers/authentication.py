"""What SPF, DKIM and DMARC say about the sender, and whether they speak for the domain that people see in From.

Rspamd does the checking; this analyzer reads its symbols, and works out alignment itself, for a sender counts as
authenticated only where SPF or DKIM passed for the organisation in From.
Security: option texts hold names chosen by the sender, so they are split from the right, where only Rspamd writes.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from mailwarden.analysis.analyzer import Known
from mailwarden.message.urls import normalize_host, registrable_domain
from mailwarden.model.envelope import Envelope, domain_of
from mailwarden.model.evidence import Finding

Symbols = Mapping[str, tuple[str, ...]]

# In each table the first symbol that is there decides.
SPF = (
    ("R_SPF_PLUSALL", "spf-neutral"),  # a domain that allows the whole world proves nothing
    ("R_SPF_FAIL", "spf-fail"),
    ("R_SPF_SOFTFAIL", "spf-softfail"),
    ("R_SPF_ALLOW", "spf-pass"),
    ("R_SPF_NEUTRAL", "spf-neutral"),
    ("R_SPF_DNSFAIL", "spf-error"),
    ("R_SPF_PERMFAIL", "spf-error"),
    ("R_SPF_NA", "spf-none"),
)
DMARC = (
    ("DMARC_POLICY_REJECT", "dmarc-reject"),
    ("DMARC_POLICY_QUARANTINE", "dmarc-quarantine"),
    ("DMARC_POLICY_SOFTFAIL", "dmarc-softfail"),
    ("DMARC_POLICY_ALLOW", "dmarc-pass"),
    ("DMARC_BAD_POLICY", "dmarc-error"),
    ("DMARC_DNSFAIL", "dmarc-error"),
    ("DMARC_NA", "dmarc-none"),
)
DMARC_FAILURES = frozenset({"dmarc-reject", "dmarc-quarantine", "dmarc-softfail"})

# A message may carry several signatures: every kind of result is told, with the domains that Rspamd marks so.
DKIM = (
    (("R_DKIM_ALLOW",), "dkim-pass", "+"),
    (("R_DKIM_REJECT",), "dkim-fail", "-"),
    (("R_DKIM_TEMPFAIL", "R_DKIM_PERMFAIL"), "dkim-error", "?~"),
    (("R_DKIM_NA",), "dkim-none", ""),
)


class AuthenticationAnalyzer:
    name: ClassVar[str] = "authentication"

    def conclude(self, known: Known) -> Iterator[Finding]:
        answer = known.answers.get("rspamd")
        if answer is None or not answer.symbols:
            return
        symbols = answer.symbols
        seen = domain_of(known.summary.from_address)
        spf = _first(SPF, symbols)
        if spf:
            yield _finding(spf, domain=spf_domain(known.envelope))
        for names, result, marks in DKIM:
            if any(name in symbols for name in names):
                yield _finding(result, domain=", ".join(signing_domains(symbols, marks)))
        dmarc = _first(DMARC, symbols)
        if dmarc in DMARC_FAILURES and known.envelope.remote_address is None:
            dmarc = "dmarc-unverified"  # SPF was never asked, so the failure proves nothing
        if dmarc:
            yield _finding(dmarc, domain=seen)
        if several_senders(symbols):
            yield _finding("duplicate-from", domain=seen)
        by = authenticated_by(known.envelope, seen, symbols)
        yield _finding("aligned", domain=seen, by=by) if by else _finding("unaligned", domain=seen)


def authenticated_by(envelope: Envelope, seen: str, symbols: Symbols) -> str:
    """Say what authenticates the domain in From, or "" where nothing does."""
    organisation = _organisation(seen)
    if not organisation or several_senders(symbols):
        return ""
    if any(_organisation(domain) == organisation for domain in signing_domains(symbols, "+")):
        return "DKIM"
    if _first(SPF, symbols) == "spf-pass" and _organisation(spf_domain(envelope)) == organisation:
        return "SPF"
    return ""


def spf_domain(envelope: Envelope) -> str:
    """Return the domain that SPF was asked about: the sender's, or the HELO name for the null sender."""
    return domain_of(envelope.sender) if envelope.sender else (envelope.helo or "").lower()


def signing_domains(symbols: Symbols, marks: str) -> list[str]:
    """Return the domains of the signatures with one of these marks, which Rspamd writes as `domain:mark`."""
    pairs = (option.rpartition(":") for option in symbols.get("DKIM_TRACE", ()))
    return [domain for domain, _, mark in pairs if mark and mark in marks]


def several_senders(symbols: Symbols) -> bool:
    """Tell whether From names more than one sender, so that a check and a reader may look at different ones."""
    return "MULTIPLE_FROM" in symbols or "Duplicate From header" in symbols.get("DMARC_NA", ())


def _organisation(domain: str) -> str:
    return registrable_domain(normalize_host(domain))


def _first(table: tuple[tuple[str, str], ...], symbols: Symbols) -> str:
    return next((result for symbol, result in table if symbol in symbols), "")


def _finding(result: str, **facts: str) -> Finding:
    return Finding(f"authentication.{result}", facts={name: text[:200] for name, text in facts.items() if text})
