"""Who a message says it is from: the name and address that people see, however torn the From header is.

Security: works on a hostile header; bounded by the reader of addresses, facts are cut by who tells them.
"""

import re
from functools import lru_cache

from msgspec import Struct

from mailwarden.message.addresses import Address, read_addresses
from mailwarden.message.urls import has_known_ending, normalize_host, registrable_domain

LONGEST = 2_000  # not inspection: a longer From is ambiguous, see sender
MAX_NAME = 300  # not inspection: a longer From is ambiguous, see sender
_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.){1,20}[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ANGLED = re.compile(r"<[^<>@]{0,300}@[^<>]{1,300}>")
_LOOSE = re.compile(r"[^\s<>()\"',;:@]{1,64}@[^\s<>()\"',;:@]{1,255}")
# Names that never leave a network, or that stand for an address on purpose.
_PRIVATE = frozenset({"arpa", "corp", "example", "home", "internal", "invalid", "lan", "local", "localdomain",
                      "localhost", "onion", "test"})  # fmt: skip


class Identity(Struct, frozen=True):
    """The sender as shown; `organisation` is the domain that somebody registered, "" where there is none."""

    name: str
    address: str
    domain: str
    organisation: str
    addresses: int = 0  # mailboxes with an address
    torn: bool = False  # the name stands apart from the address, as no mail program writes it

    @property
    def local(self) -> str:
        return self.address.rpartition("@")[0]


@lru_cache(maxsize=16)  # several analyzers look at the same sender
def read_identity(value: str) -> Identity:
    """Read a From or Reply-To header as readers show it."""
    value = value[:LONGEST]  # not inspection: a longer From is ambiguous, see sender
    mailboxes = read_addresses(value)
    addressed = [each for each in mailboxes if "@" in each.address]
    quoted = len(addressed) > 1 and '"' in value and not addressed[0].name and _is_quoted(addressed[0].address, value)
    if quoted:  # `"somebody@shown.example", <address>`: what stands first is read as the name
        mailboxes = (Address(addressed[0].address, ""), *(each for each in mailboxes if each is not addressed[0]))
        addressed = addressed[1:]
    address = addressed[0].address if addressed else _loose_address(value)
    names = [each.name for each in mailboxes[: mailboxes.index(addressed[0]) + 1 if addressed else 5] if each.name]
    domain = normalize_host(address.rpartition("@")[2]) if "@" in address else ""
    return Identity(
        name=", ".join(names)[:MAX_NAME],  # not inspection: a longer From is ambiguous, see sender
        address=address,
        domain=domain,
        organisation=registrable_domain(domain) if is_host(domain) else "",
        addresses=len({each.address.lower() for each in addressed}),
        torn=_is_torn(mailboxes) or bool(not addressed and address),
    )


def organisation_of(address: str) -> str:
    """Return the organizational domain of an address (RFC 7489, section 3.2), or its domain where it has none."""
    domain = normalize_host(address.rpartition("@")[2])
    return registrable_domain(domain) or domain


def _is_quoted(address: str, value: str) -> bool:
    return f'"{address.lower()}"' in "".join(value.lower().split()) and bool(_ANGLED.search(value))


def is_host(domain: str) -> bool:
    """Tell whether a domain can be one: a name with an ending that exists, or that private networks use."""
    if len(domain) > 253 or not _HOST.fullmatch(domain):
        return False
    return is_private(domain) or has_known_ending(domain)


def is_private(domain: str) -> bool:
    return domain.rpartition(".")[2] in _PRIVATE


def _is_torn(mailboxes: tuple[Address, ...]) -> bool:
    """Tell `Name, <address>` from `Last, First <address>`, where only the quotation marks were forgotten."""
    if len(mailboxes) < 2 or mailboxes[0].address:
        return False
    after = next((each for each in mailboxes if "@" in each.address), None)
    return after is not None and not after.name


def _loose_address(value: str) -> str:
    match = _LOOSE.search(value)
    return match.group().lower() if match else ""
