"""Which targets and addresses deliveries may reach: public ones, and the private networks of the configuration.

A tenant administrator chooses the URL of a webhook. Without these checks abby would fetch addresses of the internal
network for them (server-side request forgery). The name is resolved once per connection, every address of the answer
is checked, and the connection goes to a checked address. The rules know nothing about a network of public addresses
that only the operator's hosts can reach: `events.refuseNetworks` names those.

Security: hostile URLs and DNS answers pass through here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from mailwarden.errors import MailwardenError, SchemaViolation
from mailwarden.settings.shared import Networks

MAX_URL = 2_000
NONE = Networks()
PORTS = {"https": 443, "http": 80, "tls": 6514}

_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")

# IANA's special-purpose registries, and the addresses of cloud metadata services outside of them.
_REFUSED_V4 = tuple(
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "an unspecified address"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a carrier's private address"),
        ("127.0.0.0/8", "a loopback address"),
        ("168.63.129.16/32", "a cloud provider's metadata address"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "a documentation address"),
        ("192.88.99.0/24", "a reserved address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a reserved address"),
        ("198.51.100.0/24", "a documentation address"),
        ("203.0.113.0/24", "a documentation address"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
    )
)
_PUBLIC_V6 = IPv6Network("2000::/3")
_REFUSED_V6 = tuple(
    (IPv6Network(network), what)
    for network, what in (
        ("2001::/23", "a reserved address"),  # with Teredo and the benchmark network
        ("2001:db8::/32", "a documentation address"),
        ("2002::/16", "a 6to4 address"),
        ("3fff::/20", "a documentation address"),
    )
)
# Forms of IPv6 with an IPv4 address in their last 32 bits: mapped, compatible, translated, NAT64. The position in
# 64:ff9b:1::/48 depends on the operator's prefix (RFC 6052, section 2.2): like every address outside of 2000::/3, it is
# refused unless the configuration names it.
_EMBEDDING = tuple(map(IPv6Network, ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96")))


def _bounds(networks: Iterable[tuple[IPv4Network | IPv6Network, str]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(each.network_address), int(each.broadcast_address)) for each, _ in networks)


_RESERVED = {4: _bounds(_REFUSED_V4), 6: _bounds(_REFUSED_V6)}


def overlaps_reserved(network: IPv4Network | IPv6Network) -> bool:
    """Return whether an address of the network is private, reserved, or in another way not public."""
    if isinstance(network, IPv6Network) and not network.subnet_of(_PUBLIC_V6):
        return True
    first, last = int(network.network_address), int(network.broadcast_address)
    return any(first <= end and begin <= last for begin, end in _RESERVED[network.version])


class ForbiddenTarget(MailwardenError):
    """A target resolves to an address that deliveries must not reach."""

    code = "forbidden_target"


@dataclass(frozen=True, slots=True)
class Target:
    """The checked parts of a receiver's URL."""

    scheme: str
    host: str
    port: int

    @property
    def literal(self) -> IPv4Address | IPv6Address | None:
        """Return the address if the host is one."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class AddressRules:
    """The addresses that deliveries may reach: public ones and `allowed`, but none of `refused`.

    Without `public` only the allowed networks.
    """

    allowed: Networks = NONE
    refused: Networks = NONE
    public: bool = True

    @classmethod
    def of(cls, allowed: Iterable[str] = (), refused: Iterable[str] = ()) -> "AddressRules":
        return cls(Networks.of(allowed), Networks.of(refused))

    def for_tenants(self) -> "AddressRules":
        """Return the rules for receivers that tenants choose: no private network is allowed to them."""
        return replace(self, allowed=NONE)

    def require(self, text: str) -> None:
        """Raise ForbiddenTarget if a connection to this address is not allowed."""
        try:
            address = ip_address(text)
        except ValueError:
            raise ForbiddenTarget("The receiver's name resolves to an invalid address.") from None
        refusal = self._refusal(address)
        if refusal is not None:
            raise ForbiddenTarget(
                f"The receiver resolves to {refusal}. Deliveries go to public addresses only; "
                "events.allowPrivateNetworks of abby.yml allows further networks to receivers of the deployment."
            )

    def _refusal(self, address: IPv4Address | IPv6Address) -> str | None:
        if address in self.refused:
            return "a network of events.refuseNetworks"
        if isinstance(address, IPv4Address):
            return None if address in self.allowed else self._refusal_v4(address)
        if address.scope_id:
            return "a link-local address"
        embedded = _embedded(address)
        if embedded is not None and self._refusal(embedded) is not None:
            return "an IPv6 form of an IPv4 address"
        return None if address in self.allowed else self._refusal_v6(address)

    def _refusal_v4(self, address: IPv4Address) -> str | None:
        if not self.public:
            return "an address outside of the configured networks"
        return next((what for network, what in _REFUSED_V4 if address in network), None)

    def _refusal_v6(self, address: IPv6Address) -> str | None:
        if not self.public:
            return "an address outside of the configured networks"
        if address not in _PUBLIC_V6:
            return "a private or reserved address"
        return next((what for network, what in _REFUSED_V6 if address in network), None)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    if any(address in network for network in _EMBEDDING) and int(address) > 0xFFFF:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def read_target(url: str, *schemes: str) -> Target:
    """Return the parts of a receiver's URL, or raise SchemaViolation with the mistake.

    A host is a name, a dotted IPv4 address or a bracketed IPv6 address. The other notations of an IPv4 address
    (decimal, octal, hexadecimal, fewer than four parts) are refused, because resolvers read them differently.
    """
    if len(url) > MAX_URL:
        raise SchemaViolation(f"The URL has more than {MAX_URL} characters.")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise SchemaViolation("The URL must be printable ASCII without spaces; write a host name in punycode.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise SchemaViolation("The URL is malformed: write https://host/path.") from None
    if parts.scheme not in schemes:
        raise SchemaViolation(f"The URL must start with {' or '.join(f'{each}://' for each in schemes)}.")
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise SchemaViolation("The URL must have no user name and no password.")
    if parts.fragment:
        raise SchemaViolation("The URL must have no fragment (#).")
    if port == 0:
        raise SchemaViolation("The URL has the invalid port 0.")
    _require_host(host, bracketed="[" in parts.netloc)
    return Target(parts.scheme, host.rstrip("."), port or PORTS[parts.scheme])


def _require_host(host: str, *, bracketed: bool) -> None:
    if bracketed:
        try:
            scoped = IPv6Address(host).scope_id
        except AddressValueError:
            scoped = host
        if scoped:
            raise SchemaViolation("The host of the URL is not an IPv6 address without a zone.")
        return
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise SchemaViolation("The host of the URL is not a host name.")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            IPv4Address(host)
        except AddressValueError:
            raise SchemaViolation(
                "The host of the URL is a number: write a name, or an address as 192.0.2.1."
            ) from None
