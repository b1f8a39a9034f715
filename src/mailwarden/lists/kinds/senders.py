"""Senders and recipients: an address, a domain, or everything below a domain.

Security: reads addresses that senders choose. An address in a message is never rejected, only not found.
"""

import re
from unicodedata import normalize

from mailwarden.errors import InvalidEntry
from mailwarden.lists.kinds.domains import (
    DOMAIN_PATTERN,
    check_domain_breadth,
    fold_domain,
    label_count,
    may_be_broad_domains,
    read_domain,
    wildcards_above,
)
from mailwarden.lists.kinds.kind import Kind, PlainForm, refang

MAX_LOCAL = 256  # longer than the standard's 64: senders of mailings use more
_LOCAL = re.compile(r"[^\s\"(),:;<>@\[\\\]*]{1,256}")
_PLAIN = PlainForm(f"(?:[a-z0-9._+=-]+@)?{DOMAIN_PATTERN}")
_ADDRESS, _DOMAIN, _BELOW = 3_000, 2_000, 1_000


def read_sender(text: str) -> str:
    text = _without_dress(text)
    if text.startswith("*."):
        return "*." + read_domain(text[2:])
    return read_address(text) if "@" in text else read_domain(text)


def read_recipient(text: str) -> str:
    text = _without_dress(text)
    if text.startswith("*."):
        raise InvalidEntry("Here an entry is an address or a domain; `*.` is not taken.")
    return read_address(text) if "@" in text else read_domain(text)


def read_address(text: str) -> str:
    """Return an address in lower case with its domain as A-labels, or raise InvalidEntry."""
    local, _, domain = text.rpartition("@")
    local = _fold_local(local)
    if not _LOCAL.fullmatch(local):
        raise InvalidEntry(
            f"`{local[:80]}` is no local part: 1 to {MAX_LOCAL} characters, no spaces, quotes or brackets."
        )
    return f"{local}@{read_domain(domain)}"


def fold_address(address: str) -> str:
    """Return an address from a message in the form of entries."""
    local, at, domain = address.strip().rpartition("@")
    return f"{_fold_local(local)}@{fold_domain(domain)}" if at else ""


def candidates_for_address(address: str) -> list[str]:
    """Return the keys of the kind `sender`: the address, its domain, then `*.` above it, the closest first."""
    folded = fold_address(address)
    domain = folded.rpartition("@")[2]
    return [folded, domain, *wildcards_above(domain)] if domain else []


def candidates_for_sender_domain(domain: str) -> list[str]:
    """Return the keys of the kind `sender` for a domain without an address, such as that of a HELO."""
    folded = fold_domain(domain.strip())
    return [folded, *wildcards_above(folded)] if folded else []


def candidates_for_recipient(address: str) -> list[str]:
    """Return the keys of the kind `recipient`: the address, then its domain."""
    folded = fold_address(address)
    domain = folded.rpartition("@")[2]
    return [folded, domain] if domain else []


def sender_specificity(entry: str) -> int:
    if entry.startswith("*."):
        return _BELOW + label_count(entry)
    return _ADDRESS if "@" in entry else _DOMAIN


def check_sender_breadth(entry: str, *, lets_through: bool) -> None:
    if "@" not in entry:
        check_domain_breadth(entry, lets_through=lets_through)


def check_recipient_breadth(entry: str, *, lets_through: bool) -> None:
    """Reject a public suffix. Recipients belong to the tenant, so a free-mail domain is allowed here."""
    del lets_through
    check_sender_breadth(entry, lets_through=False)


def _without_dress(text: str) -> str:
    """Take off what people put around an address or before a domain: `<...>`, `mailto:`, `*@` and `@`."""
    text = refang(text)
    if text[:7].lower() == "mailto:":
        text = text[7:].lstrip()
    if text.startswith("<") and text.endswith(">"):
        text = text[1:-1].strip()
    if text.startswith("*@"):
        text = text[1:]
    return text.removeprefix("@")


def _fold_local(local: str) -> str:
    """Return a local part in lower case, without quotes that quote nothing."""
    if len(local) > 2 and local[0] == local[-1] == '"' and _LOCAL.fullmatch(local[1:-1]):
        local = local[1:-1]
    return local.lower() if local.isascii() else normalize("NFC", normalize("NFC", local).lower())


SENDER = Kind(
    name="sender",
    form="An address, a domain, or `*.domain` for its subdomains without the domain itself.",
    examples=(
        ("billing@example.com", "billing@example.com"),
        ("Billing@Example.COM", "billing@example.com"),
        ("<billing@example.com>", "billing@example.com"),
        ("billing[@]example[.]com", "billing@example.com"),
        ("example.com", "example.com"),
        ("@example.com", "example.com"),
        ("*@example.com", "example.com"),
        ("*.example.com", "*.example.com"),
        ("postmaster@bücher.example", "postmaster@xn--bcher-kva.example"),
    ),
    read=read_sender,
    specificity=sender_specificity,
    check_breadth=check_sender_breadth,
    plain=_PLAIN,
    may_be_broad=may_be_broad_domains,
)
RECIPIENT = Kind(
    name="recipient",
    form="An address or a domain.",
    examples=(
        ("abuse@example.com", "abuse@example.com"),
        ("mailto:Abuse@example.com", "abuse@example.com"),
        ("example.com", "example.com"),
    ),
    read=read_recipient,
    specificity=sender_specificity,
    check_breadth=check_recipient_breadth,
    plain=_PLAIN,
    may_be_broad=may_be_broad_domains,
)
