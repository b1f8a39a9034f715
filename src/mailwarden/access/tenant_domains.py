"""The normal form of a tenant's domain and of a recipient's: lower-case A-labels without a trailing dot.

Security: reads hostile domain names. An invalid name is rejected, never repaired.
"""

import re
from functools import lru_cache

import idna

MAX_DOMAIN = 253
_LABEL = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")


class NotADomain(ValueError):
    """The text is not a domain; the message has the reason."""


def normalise_domain(text: str) -> str:
    """Return the normalised domain, or raise NotADomain."""
    domain = text.strip().removesuffix(".")
    if not domain or len(domain) > MAX_DOMAIN:
        raise NotADomain(f"A domain has 1 to {MAX_DOMAIN} characters.")
    domain = domain.lower() if domain.isascii() else _to_a_labels(domain)
    labels = domain.split(".")
    if len(labels) < 2:
        raise NotADomain(f"`{domain}` has no dot: a domain that receives mail has at least two labels.")
    for label in labels:
        if not _LABEL.match(label):
            raise NotADomain(f"`{label}` is no label of a domain: letters, digits and inner hyphens, 1 to 63 of them.")
        if label.startswith("xn--"):
            _check_a_label(label)
    if labels[-1].isdigit():
        raise NotADomain(f"`{domain}` is an address or a number, not a domain.")
    if len(domain) > MAX_DOMAIN:
        raise NotADomain(f"A domain has at most {MAX_DOMAIN} characters as A-labels.")
    return domain


def domain_of_recipient(address: str) -> str | None:
    """Return the domain of a recipient, or None if it is not certain."""
    local, at, domain = address.rpartition("@")
    if not at or not local or len(domain) > MAX_DOMAIN + 1 or domain != domain.strip():
        return None
    return _normal_form(domain.lower())


@lru_cache(maxsize=4_096)  # an internationalised name costs half a millisecond, and a call may contain a thousand
def _normal_form(domain: str) -> str | None:
    try:
        return normalise_domain(domain)
    except NotADomain:
        return None


def _to_a_labels(domain: str) -> str:
    try:
        return idna.encode(domain, uts46=True, std3_rules=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError) as error:
        raise NotADomain(f"No domain can be written so: {error}.") from None


def _check_a_label(label: str) -> None:
    """Reject an A-label that decodes to nothing or to another A-label."""
    try:
        honest = idna.alabel(idna.ulabel(label)).decode("ascii") == label
    except (idna.IDNAError, UnicodeError):
        honest = False
    if not honest:
        raise NotADomain(f"`{label}` is no valid internationalised label.")
