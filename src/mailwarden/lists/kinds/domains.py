"""Domains: lower-case A-labels without a trailing dot, the check for breadth, and the wildcards above a domain.

Security: reads names that senders choose. A name in a message is never rejected, only not found.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import idna

from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.kinds.kind import Kind, PlainForm, refang
from mailwarden.message.urls import is_public_suffix, may_be_public_suffixes

MAX_DOMAIN = 253
# Underscores are no part of a host's name by the book, yet hosts with them exist and send mail.
DOMAIN_PATTERN = r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(DOMAIN_PATTERN, re.ASCII)
_FREE_MAIL = Path(__file__).parents[1] / "free_mail.txt"


def read_domain(text: str) -> str:
    """Return the domain in its one form, or raise InvalidEntry saying what is wrong with it."""
    domain = fold_domain(text)
    if len(domain) <= MAX_DOMAIN and _DOMAIN.fullmatch(domain):
        return domain
    raise _mistake(domain)


def fold_domain(domain: str) -> str:
    """Return a domain from a message in the form of entries; an invalid domain is returned in lower case."""
    if not domain.isascii():
        domain = _to_a_labels(domain[: MAX_DOMAIN + 1])
    return domain.lower().removesuffix(".")


def read_domain_entry(text: str) -> str:
    return read_domain(refang(text))


def with_subdomains(domain: str) -> tuple[str, str]:
    """Return the entries for a domain and everything below it."""
    return domain, f"*.{domain}"


def wildcards_above(domain: str) -> list[str]:
    """Return the `*.domain` keys that cover a domain, the closest first; one label alone is never stored."""
    keys: list[str] = []
    parent = domain.partition(".")[2] if len(domain) <= MAX_DOMAIN else ""
    while "." in parent:
        keys.append("*." + parent)
        parent = parent.partition(".")[2]
    return keys


def candidates_for_domain(domain: str) -> list[str]:
    """Return the keys of the kind `domain`: an entry stands for the domain itself, not for what is below it."""
    folded = fold_domain(domain)
    return [folded] if folded else []


def check_domain_breadth(entry: str, *, lets_through: bool) -> None:
    """Refuse a public suffix anywhere, and a free-mail domain where it would let mail through."""
    domain = entry.removeprefix("*.")
    if is_public_suffix(domain):
        raise EntryTooBroad(f"`{domain}` is a public suffix: it would cover the domains of many owners.")
    if lets_through and domain in free_mail_domains():
        raise EntryTooBroad(f"`{domain}` is a free mail domain: name the addresses instead.")


def may_be_broad_domains(entries: Sequence[str], *, lets_through: bool) -> bool:
    """Return whether `check_domain_breadth` may reject one of the entries."""
    return may_be_public_suffixes(entries) or (lets_through and not free_mail_domains().isdisjoint(entries))


@lru_cache(maxsize=1)
def free_mail_domains() -> frozenset[str]:
    """Return the free-mail domains."""
    lines = _FREE_MAIL.read_text("ascii").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def label_count(domain: str) -> int:
    return domain.count(".") + 1


@lru_cache(maxsize=4_096)  # the mapping of a name outside ASCII costs a hundred times what an ASCII name does
def _to_a_labels(domain: str) -> str:
    """Map as browsers do, including names that IDNA 2008 rejects, such as those with emoji."""
    try:
        labels = idna.uts46_remap(domain, std3_rules=False).split(".")
        if max(map(len, labels)) > 63:
            return domain  # no label can be so long, and the time to encode one grows with its square
        return ".".join(
            label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii") for label in labels
        )
    except (idna.IDNAError, UnicodeError):
        return domain


def _mistake(domain: str) -> InvalidEntry | EntryTooBroad:
    shown = domain[:80]
    labels = domain.split(".")
    if len(labels) == 1 and is_public_suffix(domain):
        return EntryTooBroad(f"`{shown}` is a public suffix: it would cover the domains of many owners.")
    if len(domain) > MAX_DOMAIN:
        return InvalidEntry(f"A domain has at most {MAX_DOMAIN} characters as A-labels.")
    if domain.startswith("."):
        return InvalidEntry(f"`{shown}` begins with a dot: write `*{shown}` for everything below the domain.")
    if len(labels) == 1:
        return InvalidEntry(f"`{shown}` has no dot: a domain has at least two labels.")
    if labels[-1].isdigit():
        return InvalidEntry(f"`{shown}` is an IP address or a number, not a domain.")
    return InvalidEntry(f"`{shown}` is no domain: labels hold letters, digits and inner hyphens, 1 to 63 of them.")


DOMAIN = Kind(
    name="domain",
    form="A domain, without its subdomains.",
    examples=(
        ("example.com", "example.com"),
        ("Example.COM.", "example.com"),
        ("example[.]com", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
    ),
    read=read_domain_entry,
    specificity=label_count,
    check_breadth=check_domain_breadth,
    plain=PlainForm(DOMAIN_PATTERN),
    may_be_broad=may_be_broad_domains,
)
