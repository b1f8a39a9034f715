"""The envelope: what the border MTA saw of a message besides its bytes."""

from msgspec import Struct


class Envelope(Struct, frozen=True):
    sender: str  # "" is the null sender
    recipients: tuple[str, ...]
    remote_address: str | None = None
    helo: str | None = None


def domain_of(address: str) -> str:
    """Return the lower-case domain of an address, or "" where it has none."""
    _, at, domain = address.rpartition("@")
    return domain.lower().rstrip(".") if at else ""
