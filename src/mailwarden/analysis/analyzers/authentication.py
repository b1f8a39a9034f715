"""What SPF, DKIM and DMARC say about the sender, and whether they speak for the domain that people see in From.

Rspamd does the checking; this analyzer reads its symbols, and works out alignment itself, for a sender counts as
authenticated only where SPF or DKIM passed for the organisation in From (RFC 7489, section 3.1), and Rspamd read the
same From and the same envelope sender as everything else here. A sender is never authenticated beside a DMARC failure:
one value, `Standing`, is either.
Security: option texts hold names chosen by the sender, so they are split from the right, where only Rspamd writes.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec import Struct

from mailwarden.analysis.analyzer import Known
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import normalize_host, registrable_domain
from mailwarden.model.envelope import Envelope, domain_of
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Finding

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
# RFC 7489, section 6.6.2: after a temporary error the policy, and with it strict alignment, is not known.
_TEMPORARY = "DMARC_DNSFAIL"

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
        if several_senders(symbols):
            yield _finding("duplicate-from", domain=seen)
        doubt = "" if known.ambiguous_sender else read_otherwise(known, symbols)
        if doubt:
            yield Finding(AMBIGUOUS_SENDER, "From", {"sentence": doubt})
        if doubt or known.ambiguous_sender:
            yield _finding("unaligned", domain=seen)
            return
        yield from _results(known, symbols, seen)


def _results(known: Known, symbols: Symbols, seen: str) -> Iterator[Finding]:
    spf = _first(SPF, symbols)
    if spf:
        yield _finding(spf, domain=spf_domain(known.envelope))
    for names, result, marks in DKIM:
        if any(name in symbols for name in names):
            yield _finding(result, domain=", ".join(signing_domains(symbols, marks)))
    standing = standing_of(known.envelope, seen, symbols)
    if standing.dmarc in DMARC_FAILURES and known.envelope.remote_address is None:
        yield _finding("dmarc-unverified", domain=seen)  # SPF was never asked, so the failure proves nothing
    elif standing.dmarc:
        yield _finding(standing.dmarc, domain=seen)
    yield _finding("aligned", domain=seen, by=standing.by) if standing.by else _finding("unaligned", domain=seen)


class Standing(Struct, frozen=True):
    """What is known of the domain in From: its DMARC result, and what authenticates it, "" where nothing does."""

    dmarc: str
    by: str = ""

    def __post_init__(self) -> None:
        if self.by and self.dmarc in DMARC_FAILURES:
            raise ValueError("A sender that fails DMARC is not authenticated.")


def standing_of(envelope: Envelope, seen: str, symbols: Symbols) -> Standing:
    """Return the standing of the domain in From; what fails DMARC, as strict alignment may, is not authenticated."""
    dmarc = _first(DMARC, symbols)
    if dmarc in DMARC_FAILURES or _TEMPORARY in symbols:
        return Standing(dmarc)
    return Standing(dmarc, authenticated_by(envelope, seen, symbols))


def read_otherwise(known: Known, symbols: Symbols) -> str:
    """Say where Rspamd read another sender than we do, "" where it read the same or does not tell."""
    seen, envelope = domain_of(known.summary.from_address), domain_of(known.envelope.sender)
    checked = dmarc_domain(symbols)
    # Rspamd names the organizational domain, by a public suffix list of its own: a parent domain is the same domain.
    is_parent = f".{normalize_host(seen)}".endswith(f".{normalize_host(checked)}")
    if checked and not is_parent and _organisation(checked) != _organisation(seen):
        return "the check of DMARC and the reader see different domains in the From field"
    if seen and "No From header" in symbols.get("DMARC_NA", ()):
        return "the check of DMARC sees no From field"
    read = symbols.get("FROM_NEQ_ENVFROM", ())
    if len(read) == 2 and seen and _organisation(domain_of(read[0])) != _organisation(seen):
        return "the engine and the reader see different domains in the From field"
    if len(read) == 2 and _organisation(domain_of(read[1])) != _organisation(envelope):
        return "the engine and the reader see different domains in the envelope sender"
    if "FROM_EQ_ENVFROM" in symbols and envelope and _organisation(envelope) != _organisation(seen):
        return "the engine takes the From field and the envelope sender for the same address"
    return ""


def dmarc_domain(symbols: Symbols) -> str:
    """Return the domain that Rspamd asked DMARC of; it writes `domain`, or `domain : reason`."""
    for name, _ in DMARC:
        for option in symbols.get(name, ())[:1]:
            domain = option.partition(":")[0].strip()
            return "" if " " in domain else domain
    return ""


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
    return Finding(f"authentication.{result}", facts={name: text[: SHOWN.fact] for name, text in facts.items() if text})
