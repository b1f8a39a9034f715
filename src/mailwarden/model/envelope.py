"""The envelope of a message, as the border MTA received it."""

import re

from msgspec import Struct

# One mailbox (RFC 5321, section 4.1.2), or a name without a domain as local programs have. A space or a second `@`
# outside of a quoted local part would make it two addresses.
_ONE_ADDRESS = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"<>@]+)(?:@[^\s"<>@]+)?')


class Envelope(Struct, frozen=True, omit_defaults=True):
    sender: str  # "" is the null sender
    recipients: tuple[str, ...]
    remote_address: str | None = None
    helo: str | None = None


def is_one_address(text: str) -> bool:
    """Return whether every parser reads the text as one address; whether the address exists is not checked."""
    return _ONE_ADDRESS.fullmatch(text) is not None


def domain_of(address: str) -> str:
    """Return the lower-case domain of an address, or "" if it has none."""
    _, at, domain = address.rpartition("@")
    return domain.lower().rstrip(".") if at else ""
