"""Who sent a message, and how much of that is proved: what lists that let mail through may rest on."""

from msgspec import Struct

from mailwarden.model.envelope import Envelope, domain_of
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence
from mailwarden.model.sightings import Sightings
from mailwarden.model.summary import MessageSummary

ALIGNED = "authentication.aligned"
SPF_PASS = "authentication.spf-pass"  # noqa: S105 - the name of a finding


class Identity(Struct, frozen=True):
    senders: tuple[str, ...] = ()  # the addresses in From
    proved_sender: str = ""  # the one in From, where SPF or DKIM speaks for its organisation
    proved_domains: frozenset[str] = frozenset()  # that of From, and that of the envelope where SPF passed for it


def identity_of(evidence: Evidence, envelope: Envelope, summary: MessageSummary, sightings: Sightings) -> Identity:
    """Read from the evidence who is proved; a message with several senders, or an ambiguous one, proves none."""
    findings = {finding.name for _, finding in evidence.findings}
    senders = sightings.senders or ((summary.from_address,) if summary.from_address else ())
    if AMBIGUOUS_SENDER in findings:
        return Identity(senders)
    proved = senders[0] if ALIGNED in findings and senders == (summary.from_address,) else ""
    domains = {domain_of(proved)} if proved else set()
    if SPF_PASS in findings and envelope.sender:
        domains.add(domain_of(envelope.sender))
    return Identity(senders, proved, frozenset(domains))
