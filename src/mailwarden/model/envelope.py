"""The envelope: what the border MTA saw of a message besides its bytes."""

import re

from msgspec import Struct

# One mailbox (RFC 5321, section 4.1.2), or a name without a domain as local programs have: a space or a second `@`
# outside of a quoted local part makes two addresses of it.
_ONE_ADDRESS = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"<>@]+)(?:@[^\s"<>@]+)?')


class Envelope(Struct, frozen=True):
    sender: str  # "" is the null sender
    recipients: tuple[str, ...]
    remote_address: str | None = None
    helo: str | None = None


def is_one_address(text: str) -> bool:
    """Tell whether a text is one address, whoever reads it; which addresses exist is no question here."""
    return _ONE_ADDRESS.fullmatch(text) is not None


def domain_of(address: str) -> str:
    """Return the lower-case domain of an address, or "" where it has none."""
    _, at, domain = address.rpartition("@")
    return domain.lower().rstrip(".") if at else ""
