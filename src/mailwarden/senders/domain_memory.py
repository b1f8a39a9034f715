"""The deployment's memory of sender domains, over all tenants: coarse, and without anything about one of them.

A domain is known here if several tenants had good, authenticated mail from it for some weeks. A tenant counts once for
good and once for bad, however much mail it gets: one tenant alone can neither earn nor take away this evidence.

Security: senders choose their domains; each guard stores a limited number of new sightings a day.
"""

from collections.abc import Iterator
from datetime import date
from uuid import UUID

from msgspec import Struct

from mailwarden.crypto.mac import keyed_digest
from mailwarden.model.evidence import Evidence, Finding
from mailwarden.model.outcome import Judgement, Verdict
from mailwarden.model.place import area
from mailwarden.senders.model import DomainCount, DomainStats
from mailwarden.senders.relations import FACT, GOOD, Relation

TENANTS = 3  # that had good mail from a known domain
DAYS, AGE = 5, 21  # on which it was seen, and since the first
BAD_SHARE = 5  # one tenant with bad mail for so many with good mail; one alone always is too few
GROUPS = 63  # bits of a signed number
AUTHENTICATED = "authentication.aligned"
# Everyone can send from these domains.
SHARED = ("sender.free-mail", "sender.shared-domain", "sender.service-domain", "domains.sender-disposable")
# `blocked` and the allow lists say what a tenant wants, not what a message is.
BAD = frozenset({Verdict.MALWARE, Verdict.PHISHING, Verdict.FRAUD, Verdict.SPOOF, Verdict.SPAM})


class Sighting(Struct, frozen=True):
    """A message of a domain to a tenant, good or bad."""

    domain: str
    tenant: UUID
    good: bool


def domain_to_look_up(relation: Relation, evidence: Evidence) -> str:
    """Return the domain of a message that counts for its owner alone; "" if nothing proves it."""
    if relation.colleague or not evidence.has(AUTHENTICATED) or any(map(evidence.has, SHARED)):
        return ""
    return relation.domain


def sighting_of(tenant: UUID, relation: Relation, evidence: Evidence, judgement: Judgement) -> Sighting | None:
    """Return what a judged message says about its domain; None if it says nothing."""
    domain = domain_to_look_up(relation, evidence)
    if not domain or judgement.incomplete or judgement.verdict not in GOOD | BAD:
        return None
    return Sighting(domain, tenant, judgement.verdict in GOOD)


def count_of(sighting: Sighting, salt: bytes, day: date) -> DomainCount:
    group = 1 << group_of(sighting, salt)
    good, bad = (group, 0) if sighting.good else (0, group)
    return DomainCount(domain_digest(salt, sighting.domain), good, bad, day)


def group_of(sighting: Sighting, salt: bytes) -> int:
    """Return the group of a tenant; another one for each domain, so that rows cannot be compared."""
    text = b"tenant\0" + sighting.tenant.bytes + sighting.domain.encode("utf-8", "replace")
    return int.from_bytes(keyed_digest(salt, text)[:8], "big") % GROUPS


def domain_digest(salt: bytes, domain: str) -> bytes:
    """Return the digest of a domain for the deployment; tenants have other ones (senders/lookup.py)."""
    return keyed_digest(salt, b"deployment\0" + domain.encode("utf-8", "replace"))[:16]


def findings_of(domain: str, known: DomainStats) -> Iterator[Finding]:
    if domain and is_known(known):
        yield Finding("domains.known-to-deployment", area("From"), {"domain": domain[:FACT]})


def is_known(known: DomainStats) -> bool:
    trusted = known.bad <= max(1, known.good // BAD_SHARE)
    return known.good >= TENANTS and known.days >= DAYS and known.age >= AGE and trusted
